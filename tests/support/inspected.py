"""Exchanges as the inspector shows them, made up: a leaked call, a broken answer, hostile words, ten thousand chunks."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from athena.recording.view import (
    CallVerdict,
    Change,
    Difference,
    Equality,
    EventItem,
    ExchangeRow,
    HealthHistory,
    HealthPoint,
    Mark,
    Prefix,
    ReadItem,
    ReplayResult,
    Requests,
    Session,
    SessionAgent,
    Timing,
    UpstreamRequest,
    View,
    WriteItem,
)
from athena.shells.gateway.inspect_stored import Talk, Told, ToldTalk

AT = 1_794_825_678.0
"""When the made-up exchanges began: 16 November 2026."""

TOOLS = [
    {"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
    {
        "name": "Bash",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
]


class Telling:
    """Puts a view together step by step: what came, what was understood, what left."""

    def __init__(self, row: ExchangeRow) -> None:
        self.row = row
        self.reads: list[ReadItem] = []
        self.events: list[EventItem] = []
        self.writes: list[WriteItem] = []
        self.marks: list[Mark] = []
        self._step = 0
        self._told = 0

    def moment(self, t: float, kind: Any, *, status: int = 0, note: str = "", attempt: int = 1) -> None:
        self._step += 1
        self.reads.append(ReadItem(step=self._step, t=t, kind=kind, attempt=attempt, status=status, note=note))

    def step(self, t: float, came: str, events: list[dict[str, Any]], left: str, *marks: Mark, status: int = 0) -> int:
        self._step += 1
        self.reads.append(ReadItem(step=self._step, t=t, kind="read", attempt=1, size=len(came.encode()), text=came))
        for event in events:
            self.events.append(EventItem(number=len(self.events), step=self._step, t=t, event=event))
        if left:
            known = len(self.events) - 1
            told = {"first_event": self._told, "last_event": known} if known >= self._told else {}
            self.writes.append(
                WriteItem(step=self._step, t=t + 0.0001, size=len(left.encode()), text=left, status=status, **told)
            )
            self._told = known + 1
        self.marks += [msgspec.structs.replace(mark, step=self._step) for mark in marks]
        return self._step

    def view(self, **more: Any) -> View:
        row = self.row
        values: dict[str, Any] = {
            "calls": [],
            "requests": requests_of(row),
            "settings": {"format": row.format or "auto", "repair": "syntax", "policy": "collect_then_stop"},
            "timing": Timing(
                total=row.duration_ms,
                upstream_head=row.first_byte_ms * 0.8,
                first_read=row.first_byte_ms * 0.95,
                first_write=row.first_byte_ms,
                longest_gap=620.0,
                held=71.0,
                own_us_per_chunk=row.own_us_per_chunk,
            ),
            "replay": Equality(equal=True),
        }
        return View(row=row, reads=self.reads, events=self.events, writes=self.writes, marks=self.marks, **{**values, **more})


def mark(kind: Any, rule: str, text: str, event: int | None = None, call: int | None = None) -> Mark:
    return Mark(kind=kind, rule=rule, text=text, step=0, event=event, call=call)


def chat(**delta: Any) -> str:
    """A chunk of OpenAI Chat as upstreams send it."""
    finish = delta.pop("finish_reason", None)
    body = {
        "id": "gen-1794825678-8Qz",
        "object": "chat.completion.chunk",
        "created": 1794825678,
        "model": "moonshotai/kimi-k2-0905",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
    }
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"


def anthropic(kind: str, **fields: Any) -> str:
    """An event of Anthropic Messages as clients get it."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, separators=(',', ':'))}\n\n"


def row(number: int, **more: Any) -> ExchangeRow:
    values: dict[str, Any] = {
        "id": f"req_{number:04d}",
        "at": AT + number,
        "program": "claude-cli/2.1",
        "session": "7f3a1c52",
        "agent": "main",
        "dialect": "anthropic_messages",
        "path": "/v1/messages",
        "model": "claude-sonnet-5",
        "upstream": "openrouter",
        "upstream_model": "moonshotai/kimi-k2-0905",
        "upstream_dialect": "openai_chat",
        "stream": True,
        "status": 200,
        "outcome": "ok",
        "attempts": 1,
        "chunks": 187,
        "input_tokens": 18204,
        "output_tokens": 212,
        "first_byte_ms": 412.0,
        "duration_ms": 3190.0,
        "own_us_per_chunk": 41.3,
        "size": 120_000,
    }
    return ExchangeRow(**{**values, **more})


def requests_of(row: ExchangeRow, **more: Any) -> Requests:
    question = "Look at src/main.py and tell me what is wrong with it."
    client = {
        "model": row.model,
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "You are a careful engineer.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 8000},
        "tools": TOOLS,
        "messages": [{"role": "user", "content": question}],
    }
    upstream = {
        "model": row.upstream_model,
        "max_completion_tokens": 32000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning": {"max_tokens": 8000},
        "tools": [
            {"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}} for tool in TOOLS
        ],
        "messages": [
            {"role": "system", "content": "You are a careful engineer."},
            {"role": "user", "content": question},
        ],
    }
    asked = UpstreamRequest(
        attempt=1,
        upstream=row.upstream,
        model=row.upstream_model,
        dialect=row.upstream_dialect,
        url="https://upstream.example/api/v1/chat/completions",
        headers={"content-type": "application/json", "accept": "text/event-stream"},
        body=json.dumps(upstream),
        status=row.status,
    )
    values: dict[str, Any] = {
        "method": "POST",
        "path": row.path,
        "headers": {
            "content-type": "application/json",
            "user-agent": f"{row.program} (external, cli)",
            "anthropic-version": "2023-06-01",
        },
        "body": json.dumps(client),
        "upstream": [asked],
        "changes": [
            Change(
                path="system[0].cache_control",
                action="left out",
                reason="the upstream's dialect has no cache marks; it caches prefixes by itself",
            ),
            Change(
                path="thinking.budget_tokens",
                action="translated",
                reason="the upstream takes a limit of reasoning tokens, under another name",
            ),
        ],
        "tools": [tool["name"] for tool in TOOLS],
    }
    return Requests(**{**values, **more})


def leaked() -> View:
    """A call of kimi_k2 that leaks into reasoning, then one of the upstream's own."""
    told = Telling(
        row(
            18,
            verdict="repaired",
            format="kimi_k2",
            calls=2,
            text_calls=1,
            repairs=1,
            warnings=1,
        )
    )
    told.moment(0.0, "attempt", note="openrouter, moonshotai/kimi-k2-0905")
    told.moment(0.331, "head", status=200, note="text/event-stream")
    thought = ["I should look", " at the file", " first, then", " see what git says", " about it."]
    first = anthropic("message_start", message={"id": "msg_018Qz", "role": "assistant", "model": "claude-sonnet-5"})
    for index, piece in enumerate(thought):
        start = [{"event": "Start", "id": "gen-1794825678-8Qz", "model": "moonshotai/kimi-k2-0905"}] if index == 0 else []
        delta = anthropic("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": piece})
        told.step(
            0.412 + 0.041 * index,
            chat(reasoning_content=piece),
            [*start, {"event": "ThinkingDelta", "text": piece}],
            (first if index == 0 else "") + delta,
            status=200 if index == 0 else 0,
        )
    told.step(
        0.631,
        chat(reasoning_content="<|tool_calls_section_begin|><|tool_call_begin|>functions"),
        [],
        "",
        mark("hold", "kimi_k2", "A call of the format kimi_k2 begins; its name is not complete, so 9 characters wait."),
    )
    number = len(told.events)
    told.step(
        0.655,
        chat(reasoning_content='.Read:0<|tool_call_argument_begin|>{"path": "src/'),
        [
            {"event": "ToolCallStart", "call": 0, "id": "functions.Read:0", "name": "Read"},
            {"event": "ToolCallDelta", "call": 0, "arguments": '{"path": "src/'},
        ],
        "",
        mark(
            "text_call",
            "kimi_k2",
            "The call was written into the reasoning; it is declared, and its words are not in the request.",
            number,
            0,
        ),
        mark("hold", "echo_guard", "Arguments wait until it is certain that the call is the model's own."),
    )
    block = anthropic(
        "content_block_start", index=1, content_block={"type": "tool_use", "id": "toolu_8QzJ3", "name": "Read", "input": {}}
    )
    told.step(
        0.702,
        chat(reasoning_content='main.py"}<|tool_call_end|>'),
        [
            {"event": "ToolCallDelta", "call": 0, "arguments": 'main.py"}'},
            {
                "event": "ToolCallComplete",
                "call": 0,
                "id": "functions.Read:0",
                "name": "Read",
                "arguments": '{"path": "src/main.py"}',
            },
        ],
        block
        + anthropic(
            "content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": '{"path": "src/main.py"}'}
        )
        + anthropic("content_block_stop", index=1),
        mark("invented_id", "tool_use_id", "The client's dialect wants ids that begin with toolu_; this one was made up."),
    )
    pieces = ['{"command": ', '"git ', "status", ' --short"}']
    told.step(
        1.324,
        chat(tool_calls=[{"index": 0, "id": "call_77", "type": "function", "function": {"name": "Bash", "arguments": ""}}]),
        [{"event": "ToolCallStart", "call": 1, "id": "call_77", "name": "Bash"}],
        anthropic("content_block_start", index=2, content_block={"type": "tool_use", "id": "call_77", "name": "Bash"}),
    )
    for index, piece in enumerate(pieces):
        told.step(
            1.371 + 0.032 * index,
            chat(tool_calls=[{"index": 0, "function": {"arguments": piece}}]),
            [{"event": "ToolCallDelta", "call": 1, "arguments": piece}],
            anthropic("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": piece}),
        )
    done = len(told.events) + 1
    told.step(
        3.190,
        chat(finish_reason="stop") + "data: [DONE]\n\n",
        [
            {
                "event": "ToolCallComplete",
                "call": 1,
                "id": "call_77",
                "name": "Bash",
                "arguments": '{"command": "git status --short"}',
            },
            {
                "event": "Done",
                "finish": {"kind": "tool", "raw": "stop"},
                "usage": {"input_total": 18204, "output_total": 212},
            },
        ],
        anthropic("content_block_stop", index=2)
        + anthropic("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 212})
        + anthropic("message_stop"),
        mark(
            "finish", "derived_finish", "The upstream said stop; two complete calls were made, so the reason is derived.", done
        ),
    )
    told.moment(3.191, "end")
    calls = [
        CallVerdict(
            call=0,
            id="toolu_8QzJ3",
            name="Read",
            arguments='{"path": "src/main.py"}',
            step=9,
            came_as="text in reasoning, kimi_k2",
            complete=True,
            json="yes",
            declared=True,
            schema="yes",
            provenance="model",
            finish="tool, derived from stop",
            id_from="invented",
        ),
        CallVerdict(
            call=1,
            id="call_77",
            name="Bash",
            arguments='{"command": "git status --short"}',
            step=11,
            came_as="native",
            complete=True,
            json="yes",
            declared=True,
            schema="yes",
            provenance="native",
            finish="tool, derived from stop",
        ),
    ]
    prefix = Prefix(
        of="req_0009",
        common=71_204,
        size=71_377,
        before='"content":"Look at src/main.py and tell me',
        was='"}]}',
        now=' what is wrong with it."}]}',
    )
    return told.view(calls=calls, prefix=prefix)


def broken() -> View:
    """The upstream ends inside of a call; a second upstream fails as well."""
    told = Telling(
        row(
            9,
            verdict="error",
            status=502,
            outcome="error",
            error="truncated_call",
            program="codex_cli_rs/0.60",
            session="0192-thread",
            dialect="openai_responses",
            path="/v1/responses",
            model="gpt-5.6",
            upstream="local-vllm",
            upstream_model="deepseek-v3.2",
            calls=0,
            bad_calls=1,
            attempts=2,
            first_byte_ms=210.0,
            duration_ms=905.0,
            chunks=6,
        )
    )
    told.moment(0.0, "attempt", note="local-vllm, deepseek-v3.2")
    told.moment(0.08, "head", status=503, note="overloaded")
    told.moment(0.081, "end", note="the upstream is overloaded")
    told.marks.append(Mark(kind="retry", rule="retry", text="Tried again after 100 ms.", step=3))
    told.moment(0.181, "attempt", attempt=2, note="local-vllm, deepseek-v3.2")
    told.moment(0.2, "head", attempt=2, status=200, note="text/event-stream")
    told.step(
        0.21,
        chat(content="Let me look."),
        [{"event": "TextDelta", "text": "Let me look."}],
        'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"Let me look."}\n\n',
        status=200,
    )
    told.step(
        0.4,
        chat(
            tool_calls=[
                {"index": 0, "id": "call_1", "function": {"name": "edit", "arguments": '{"path": "a.py", "content": "im'}}
            ]
        ),
        [
            {"event": "ToolCallStart", "call": 0, "id": "call_1", "name": "edit"},
            {"event": "ToolCallDelta", "call": 0, "arguments": '{"path": "a.py", "content": "im'},
        ],
        'event: response.output_item.added\ndata: {"type":"response.output_item.added","item":{"name":"edit"}}\n\n',
    )
    told.moment(0.9, "end", attempt=2, note="the connection was closed before the answer ended")
    told.events.append(
        EventItem(
            number=len(told.events),
            step=8,
            t=0.9,
            event={
                "event": "Error",
                "message": "the upstream ended inside of a call",
                "code": "truncated_call",
                "call": 0,
            },
        )
    )
    told.writes.append(
        WriteItem(
            step=8,
            t=0.901,
            size=94,
            text='event: response.failed\ndata: {"type":"response.failed","response":{"error":{"code":"server_error"}}}\n\n',
            first_event=3,
            last_event=3,
        )
    )
    told.marks.append(
        Mark(
            kind="bad_call",
            rule="truncated_call",
            text="The call edit has no end: its arguments stop inside of a string. The client got an error, not half a call.",
            step=8,
            event=3,
            call=0,
        )
    )
    call = CallVerdict(
        call=0,
        id="call_1",
        name="edit",
        arguments='{"path": "a.py", "content": "im',
        step=7,
        came_as="native",
        complete=False,
        json="no",
        declared=True,
        schema="unchecked",
        provenance="native",
    )
    return told.view(
        calls=[call],
        help="The upstream closes its connection while it writes. Look at its log for a limit of time or memory; a larger "
        "max_model_len helps where answers are long. A fallback under `models` takes over where no call has begun.",
    )


def hostile(text: str) -> View:
    """Every field that a stranger writes holds `text`."""
    told = Telling(
        row(
            66,
            program=text,
            session=text,
            agent=text,
            model=text,
            upstream_model=text,
            format=text,
            error=text,
            verdict="error",
        )
    )
    told.moment(0.0, "attempt", note=text)
    told.step(
        0.1,
        text,
        [
            {"event": "TextDelta", "text": text},
            {"event": "ToolCallStart", "call": 0, "id": text, "name": text},
            {"event": "ToolCallComplete", "call": 0, "id": text, "name": text, "arguments": text},
            {"event": "Error", "message": text, "code": text, "fatal": False},
            {"event": "WholePart", "part": {"type": text}},
        ],
        text,
        mark("text_call", text, text, 1),
        mark("hold", text, text),
    )
    body = json.dumps({"model": text, text: [text, {text: text}]})
    asked = UpstreamRequest(
        attempt=1, upstream=text, model=text, dialect=text, url=text, headers={text: text}, body=body, failure=text
    )
    return told.view(
        calls=[
            CallVerdict(
                call=0,
                id=text,
                name=text,
                arguments=text,
                step=2,
                came_as=text,
                complete=True,
                json="no",
                declared=False,
                schema="no",
                schema_problem=text,
                provenance="quoted",
                finish=text,
            )
        ],
        requests=Requests(
            method="POST",
            path=text,
            headers={text: text},
            body=body,
            upstream=[asked],
            changes=[Change(path=text, action=text, reason=text)],
            tools=[text],
        ),
        settings={text: text},
        help=text,
        notes=[text],
        replay=Equality(equal=False, differences=[text]),
        prefix=Prefix(of=text, common=3, size=9, before=text, was=text, now=text),
    )


def long_answer(chunks: int) -> View:
    """An answer of very many chunks, with a leaked call somewhere inside."""
    told = Telling(row(7, chunks=chunks, output_tokens=chunks, duration_ms=chunks * 12.0, verdict="repaired", format="kimi_k2"))
    told.moment(0.0, "attempt", note="openrouter")
    for index in range(chunks):
        word = f" word{index}" * (1 + index % 7)
        delta = anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
        marks = [mark("repair", "syntax", "A comma was missing.")] if index % 1000 == 500 else []
        told.step(0.4 + index * 0.012, chat(content=word), [{"event": "TextDelta", "text": word}], delta, *marks)
    return told.view()


def rows() -> list[ExchangeRow]:
    """A list that has one of everything, the newest first."""
    return [
        row(
            31,
            state="live",
            verdict="live",
            status=0,
            outcome="",
            upstream_model="qwen3-coder-480b",
            model="claude-haiku-5",
            agent="explore-1",
            parent="main",
        ),
        row(22, calls=1, duration_ms=2100.0),
        leaked().row,
        row(
            14,
            model="claude-haiku-5",
            upstream="local-vllm",
            upstream_model="qwen3-coder-480b",
            agent="explore-1",
            parent="main",
            duration_ms=610.0,
        ),
        row(12, verdict="echo", echoes=1, warnings=1, duration_ms=1800.0),
        broken().row,
        row(
            5,
            program="codex_cli_rs/0.60",
            session="0192-thread",
            dialect="openai_responses",
            path="/v1/responses",
            model="gpt-5.6",
            upstream="local-vllm",
            upstream_model="deepseek-v3.2",
            calls=3,
            duration_ms=4800.0,
        ),
        row(3, verdict="left", outcome="client_closed", duration_ms=300.0, session="", agent="", program="python-httpx/0.28"),
    ]


def talks() -> list[ToldTalk]:
    """One chain of two responses, a call in the first."""
    asked = {"type": "message", "role": "user", "content": "Is src/main.py formatted?"}
    call = {"type": "function_call", "name": "read_file", "call_id": "call_1", "arguments": '{"path":"src/main.py"}'}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "import sys\nprint(sys.argv)"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes: nothing would change."}]}
    first, second = "resp_ath0001", "resp_ath0002"
    talk = Talk(id=first, kind="chain", owner="ci", began=AT + 2, last=AT + 18, responses=[first, second], status="completed")
    told = [
        Told(
            id=first, created=AT + 2, status="completed", model="kimi-k2", parent="", exchange="", input=[asked], output=[call]
        ),
        Told(
            id=second,
            created=AT + 18,
            status="completed",
            model="kimi-k2",
            parent=first,
            exchange="req_0018",
            input=[result],
            output=[said],
        ),
    ]
    return [ToldTalk(talk=talk, told=told, is_whole=True)]


def sessions() -> list[Session]:
    return [
        Session(
            id="7f3a1c52",
            program="claude-cli/2.1",
            first=AT + 9,
            last=AT + 31,
            exchanges=14,
            errors=0,
            repaired=1,
            agents=[
                SessionAgent(id="main", parent="", exchanges=11, last=AT + 22),
                SessionAgent(id="explore-1", parent="main", exchanges=3, last=AT + 31),
            ],
        ),
        Session(
            id="0192-thread",
            program="codex_cli_rs/0.60",
            first=AT + 5,
            last=AT + 9,
            exchanges=6,
            errors=1,
            repaired=0,
            agents=[SessionAgent(id="main", parent="", exchanges=6, last=AT + 9)],
        ),
    ]


def health() -> list[HealthHistory]:
    def points(scale: int, errors: int, leaks: int) -> list[HealthPoint]:
        return [
            HealthPoint(
                at=AT + 60 * slot,
                requests=scale + (slot * 7) % 11,
                errors=errors if slot in (11, 12) else 0,
                calls=scale + (slot * 5) % 9,
                text_calls=leaks * (slot % 4),
                bad_calls=1 if leaks and slot % 9 == 4 else 0,
                repairs=slot % 3,
                first_byte_ms=380 + (slot * 37) % 160 + (900 if errors and slot in (11, 12) else 0),
            )
            for slot in range(30)
        ]

    return [
        HealthHistory(
            upstream="openrouter",
            model="moonshotai/kimi-k2-0905",
            up=True,
            requests=412,
            errors=2,
            calls=388,
            good_calls=383,
            leaks=9,
            points=points(10, 0, 0),
        ),
        HealthHistory(
            upstream="local-vllm",
            model="deepseek-v3.2",
            up=True,
            requests=120,
            errors=14,
            calls=97,
            good_calls=79,
            leaks=22,
            points=points(5, 6, 1),
        ),
        HealthHistory(
            upstream="lab",
            model="qwen3-coder-480b",
            up=False,
            requests=31,
            errors=31,
            calls=0,
            good_calls=0,
            leaks=0,
            points=points(1, 2, 0),
        ),
    ]


def replay_of(view: View, settings: dict[str, str]) -> ReplayResult:
    """What a replay says: with another format the leaked call is thinking again."""
    if not settings:
        return ReplayResult(equal=True, settings={}, differences=[], was=view, now=view)
    was = next(item for item in view.events if item.event["event"] == "ToolCallStart")
    now = {"event": "ThinkingDelta", "text": "<|tool_calls_section_begin|><|tool_call_begin|>functions.Read:0"}
    differences = [
        Difference(at=was.number, was=was.event, now=now),
        Difference(at=was.number + 1, was=view.events[was.number + 1].event, now=None),
    ]
    changed = msgspec.structs.replace(view, calls=view.calls[1:])
    return ReplayResult(equal=False, settings=settings, differences=differences, was=view, now=changed)

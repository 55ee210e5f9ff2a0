"""A Chat upstream whose models write their tool calls as text, for frameworks that run a tool loop.

The model name in the request decides the format (`FORMS`), and the suffix `:reasoning` that the call stands in the reasoning.
The model calls the first tool it is offered, about Tokyo, and answers with whatever the tool said. Answers come in small
pieces, cut without regard to tokens. The texts are spelled out here, not rendered with Athena's code: models write this.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

CITY = "Tokyo"
ANSWER = "The tool says: "
_SAID = "I will look. "
_PIECE = 7
_HEAD = {"id": "chatcmpl-leaking", "created": 1_700_000_000}
_USAGE = {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150}

FORMS: Mapping[str, str] = {
    "kimi-content": "moonshotai/kimi-k2-0905",
    "kimi-reasoning": "moonshotai/kimi-k2-0905:reasoning",
    "qwen-content": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    "qwen-reasoning": "Qwen/Qwen3-Coder-30B-A3B-Instruct:reasoning",
    "deepseek-content": "deepseek-ai/DeepSeek-V3.1",
    "deepseek-reasoning": "deepseek-ai/DeepSeek-V3.1:reasoning",
}
"""Who writes the call, and where; and the model name it goes by."""


class Turn(msgspec.Struct, frozen=True):
    """One request as the upstream saw it."""

    model: str
    stream: bool
    tools: tuple[str, ...]
    calls: tuple[tuple[str, str, str], ...]
    """(id, name, arguments) of the calls in the history."""
    results: tuple[tuple[str, str], ...]
    """(id, text) of the results in the history."""


class LeakingUpstream:
    """Use as a context manager; `url` is its base address with /v1."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        upstream = self

        class Handler(_Handler):
            turns = upstream.turns

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> LeakingUpstream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    turns: list[Turn]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = _turn(body)
        self.turns.append(turn)
        field, text = _answer(turn)
        if not turn.stream:
            message = {"role": "assistant", "content": None, field: text}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            whole = {**_HEAD, "object": "chat.completion", "model": turn.model, "choices": choices, "usage": _USAGE}
            data = json.dumps(whole).encode()
            self._head("application/json", "content-length", str(len(data)))
            self.wfile.write(data)
            return
        self._head("text/event-stream", "transfer-encoding", "chunked")
        for record in _records(turn.model, field, text):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(record), record))
        self.wfile.write(b"0\r\n\r\n")

    def _head(self, content_type: str, framing: str, value: str) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header(framing, value)
        self.end_headers()


def _records(model: str, field: str, text: str) -> Iterator[bytes]:
    head = {**_HEAD, "object": "chat.completion.chunk", "model": model}
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{field: text[start : start + _PIECE]} for start in range(0, len(text), _PIECE)]
    for delta in deltas:
        yield _record({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _record({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield _record({**head, "choices": [], "usage": _USAGE})
    yield b"data: [DONE]\n\n"


def _record(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


# -- the model -------------------------------------------------------------------------------------------------------------


def _turn(body: Mapping[str, Any]) -> Turn:
    calls = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
    results = [message for message in body["messages"] if message["role"] == "tool"]
    return Turn(
        model=body["model"],
        stream=bool(body.get("stream")),
        tools=tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
        calls=tuple((call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls),
        results=tuple((message["tool_call_id"], _text(message["content"])) for message in results),
    )


def _answer(turn: Turn) -> tuple[str, str]:
    """The field of the message, and its text."""
    if turn.results:
        return "content", ANSWER + turn.results[-1][1]
    _, _, channel = turn.model.partition(":")
    return "reasoning_content" if channel else "content", leaked_text(turn.model, turn.tools[0])


def leaked_text(model: str, tool: str) -> str:
    """What that model writes to call the tool about Tokyo."""
    return _SAID + _WRITTEN[model.partition(":")[0]](tool)


def _kimi(name: str) -> str:
    return (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
        f'{{"city": "{CITY}"}}<|tool_call_end|><|tool_calls_section_end|>'
    )


def _qwen(name: str) -> str:
    return f"<tool_call>\n<function={name}>\n<parameter=city>\n{CITY}\n</parameter>\n</function>\n</tool_call>"


def _deepseek(name: str) -> str:
    return (
        f'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{{"city": "{CITY}"}}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


_WRITTEN = {
    FORMS["kimi-content"]: _kimi,
    FORMS["qwen-content"]: _qwen,
    FORMS["deepseek-content"]: _deepseek,
}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content)
    return content or ""

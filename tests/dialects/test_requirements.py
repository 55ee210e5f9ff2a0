"""What goes up and what comes down between an Anthropic client and a Chat upstream, and between a Chat client and a Chat
upstream: one test per promise of docs/reference/requirements.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena.dialects import get_dialect
from athena.errors import AthenaError, InvalidRequest, UnsupportedFeature
from athena.exchange import Exchange, Options, Route, Step
from athena.model.profile import Profile
from athena.profiles import default_profiles

OPENROUTER = default_profiles().get("openrouter", "some/model")


def begin(
    body: dict[str, Any], *, dialect: str = "anthropic_messages", profile: Profile | None = None, **options: Any
) -> Exchange:
    route = Route(dialect="openai_chat", model="up/model", profile=profile or Profile())
    full = {"model": "client-model", "messages": [{"role": "user", "content": "Hi"}], **body}
    if dialect == "anthropic_messages":
        full.setdefault("max_tokens", 100)
    return Exchange(get_dialect(dialect).decode_request(full), route, Options(seed="s", created=5, **options))


def sent(body: dict[str, Any], **where: Any) -> Any:
    return json.loads(begin(body, **where).call.body)


def messages(*turns: dict[str, Any], **where: Any) -> Any:
    return sent({"messages": list(turns)}, **where)["messages"]


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(name: str = "a", call_id: str = "toolu_1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, **fields}


TOOL = {"name": "a", "input_schema": {"type": "object", "properties": {}}}
CALLED = [user(text("Hi")), {"role": "assistant", "content": [use()]}]


def run(exchange: Exchange, body: bytes, status: int = 200, **headers: str) -> list[Step]:
    kind = "text/event-stream" if body.startswith((b"data:", b":")) else "application/json"
    steps = [exchange.upstream_head(status, {"content-type": kind, **headers}), exchange.upstream_data(body)]
    return [*steps, exchange.upstream_end()]


def answer(exchange: Exchange, body: bytes, status: int = 200, **headers: str) -> tuple[int, dict[str, str], bytes]:
    steps = run(exchange, body, status, **headers)
    head = next(step.head for step in steps if step.head is not None)
    return head.status, head.headers, b"".join(step.output for step in steps)


def whole(message: dict[str, Any], finish: str | None = "stop", **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps(
        {"id": "gen", "object": "chat.completion", "created": 1, "model": "up", "choices": [choice], **fields}
    ).encode()


def chunks(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True, **last: Any) -> bytes:
    head = {"id": "gen", "object": "chat.completion.chunk", "created": 1, "model": "up"}
    records = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if finish is not None:
        records.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **last})
    frames = "".join(f"data: {json.dumps(record)}\n\n" for record in records)
    return (frames + ("data: [DONE]\n\n" if done else "")).encode()


def events(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in output.decode().split("\n") if line.startswith("data: {")]


CALL = {"id": "call_1", "type": "function", "function": {"name": "a", "arguments": '{"x":1}'}}


# -- requests --------------------------------------------------------------------------------------------------------------


def test_exchanges_share_nothing() -> None:
    one, two = begin({"stream": True}), begin({"stream": True})
    for exchange in (one, two):
        exchange.upstream_head(200, {"content-type": "text/event-stream"})
    first, second = chunks({"content": "one"}), chunks({"content": "two"})
    outputs = [b"", b""]
    for position in range(0, max(len(first), len(second)), 7):
        outputs[0] += one.upstream_data(first[position : position + 7]).output
        outputs[1] += two.upstream_data(second[position : position + 7]).output
    assert b"one" in outputs[0]
    assert b"two" not in outputs[0]
    assert b"two" in outputs[1]


def test_system_prompts() -> None:
    assert sent({"system": "S"})["messages"][0] == {"role": "system", "content": "S"}
    marked = [text("A"), {**text("B"), "cache_control": {"type": "ephemeral"}}]
    kept = sent({"system": marked}, profile=OPENROUTER)["messages"][0]
    assert [part["text"] for part in kept["content"]] == ["A", "B"]
    assert kept["content"][1]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in str(sent({"system": marked}))
    assert "cache_control" not in str(sent({"system": [text("A"), text("B")]}, profile=OPENROUTER))


def test_assistant_turns() -> None:
    spoken = {"role": "assistant", "content": [text("one"), text("two"), use("a", "toolu_1", x=1)]}
    message = messages(user(text("Hi")), spoken, user(result(content="ok")))[1]
    assert message["content"] == "one\ntwo"
    assert message["tool_calls"] == [{"id": "toolu_1", "type": "function", "function": {"name": "a", "arguments": '{"x":1}'}}]
    assert messages(*CALLED, user(result(content="ok")))[1]["content"] is None


def test_results_first_then_the_user() -> None:
    """Text of the turn never stands between call and result."""
    spoken = {"role": "assistant", "content": [use("a", "toolu_1"), use("a", "toolu_2")]}
    turn = user(text("Now?"), result("toolu_2", content="two"), result("toolu_1", content="one"), text("Go."))
    found = messages(user(text("Hi")), spoken, turn)[2:]
    assert [(message["role"], message.get("tool_call_id"), message["content"]) for message in found[:2]] == [
        ("tool", "toolu_1", "one"),
        ("tool", "toolu_2", "two"),
    ]
    assert found[2]["role"] == "user"
    assert [part["text"] for part in found[2]["content"]] == ["Now?", "Go."]
    assert len(found) == 3


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def test_tool_results() -> None:
    def shown(**fields: Any) -> list[Any]:
        found: list[Any] = messages(*CALLED, user(result(**fields)))[2:]
        return found

    assert shown(content="ok")[0]["content"] == "ok"
    assert shown(content=[text("a"), text("b")])[0]["content"] == "a\nb"
    assert shown()[0]["content"] == ""
    assert shown(content="no", is_error=True)[0]["content"] == "[tool error] no"
    note, behind = shown(content=[text("see"), IMAGE])
    assert note["content"].startswith("see\n[image")
    assert behind["role"] == "user"
    assert behind["content"][-1]["image_url"]["url"] == "data:image/png;base64,aGk="
    assert "toolu_1" in behind["content"][0]["text"]


def test_images_and_documents() -> None:
    url = {"type": "image", "source": {"type": "url", "url": "https://x.test/i.png"}}
    content = messages(user(text("a"), IMAGE, text("b"), url))[0]["content"]
    assert [part.get("text") or part["image_url"]["url"] for part in content] == [
        "a", "data:image/png;base64,aGk=", "b", "https://x.test/i.png",
    ]  # fmt: skip
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}, "title": "T"}
    assert "words" in str(messages(user(plain))[0]["content"])
    with pytest.raises(UnsupportedFeature):
        messages(user({"type": "document", "source": {"type": "file", "file_id": "f"}}))


def test_tools_and_schemas() -> None:
    """A value `format: uri` inside a schema's data stays."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "link": {"type": "string", "format": "uri"},
            "format": {"type": "string", "enum": ["uri"]},
            "data": {"type": "object", "default": {"format": "uri"}, "examples": [{"format": "uri"}]},
        },
    }
    function = sent({"tools": [{"name": "a", "input_schema": schema}]})["tools"][0]["function"]
    assert function["parameters"]["properties"] == {
        "link": {"type": "string"},
        "format": {"type": "string", "enum": ["uri"]},
        "data": {"type": "object", "default": {"format": "uri"}, "examples": [{"format": "uri"}]},
    }
    assert schema["properties"]["link"] == {"type": "string", "format": "uri"}, "the client's schema was changed"
    bare = sent({"tools": [{"name": "a", "input_schema": {}}]})["tools"][0]["function"]["parameters"]
    assert bare == {"type": "object", "properties": {}}
    hosted = begin({"tools": [{"type": "web_search_20260318", "name": "web_search"}, TOOL]})
    assert [tool["function"]["name"] for tool in json.loads(hosted.call.body)["tools"]] == ["a"]
    assert any("web_search" in str(loss) or "tools" in loss.path for loss in hosted.losses)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "a"}, {"type": "function", "function": {"name": "a"}}),
        ({"type": "none"}, "none"),
    ],
)
def test_tool_choices(choice: dict[str, Any], expected: Any) -> None:
    body = sent({"tools": [TOOL], "tool_choice": choice})
    assert body["tool_choice"] == expected
    assert "parallel_tool_calls" not in body


def test_parallel_switch() -> None:
    body = sent({"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}})
    assert body["parallel_tool_calls"] is False
    assert "tool_choice" not in sent({"tool_choice": {"type": "any"}})


def test_settings() -> None:
    """None of these may be lost."""
    body = sent(
        {"max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop_sequences": ["X"], "stream": True,
         "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 2048}},
        profile=OPENROUTER,
    )  # fmt: skip
    assert (body["max_tokens"], body["temperature"], body["top_p"], body["top_k"]) == (7, 0.5, 0.9, 3)
    assert (body["stop"], body["user"], body["stream"]) == (["X"], "u", True)
    assert body["stream_options"] == {"include_usage": True}
    assert body["reasoning"]["max_tokens"] == 2048
    assert "reasoning_effort" not in body
    assert sent({}).get("stream", False) is False, "absent is false"
    assert "stream_options" not in sent({})


def test_pairs() -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages(user(text("Hi")), {"role": "assistant", "content": "Yo"}, user(result(content="x")))
    assert caught.value.code == "orphan_tool_result"
    interrupted = messages(*CALLED, user(text("Never mind.")))
    assert [message["role"] for message in interrupted] == ["user", "assistant", "tool", "user"]
    assert "no result" in interrupted[2]["content"]


# -- answers ---------------------------------------------------------------------------------------------------------------


def test_shape_of_a_whole_answer() -> None:
    """A whole request gets a whole Anthropic body."""
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 3}}
    status, headers, output = answer(begin({}), whole({"content": "T", "tool_calls": [CALL]}, "tool_calls", usage=usage))
    body = json.loads(output)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body["id"].startswith("msg_")
    assert {key: body[key] for key in ("type", "role", "model", "stop_reason", "stop_sequence")} == {
        "type": "message", "role": "assistant", "model": "client-model", "stop_reason": "tool_use", "stop_sequence": None,
    }  # fmt: skip
    assert [block["type"] for block in body["content"]] == ["text", "tool_use"]
    assert (body["usage"]["input_tokens"], body["usage"]["cache_read_input_tokens"], body["usage"]["output_tokens"]) == (
        7,
        3,
        4,
    )
    for empty in ({"content": ""}, {"content": None}):
        assert json.loads(answer(begin({}), whole(empty))[2])["content"] == []


@pytest.mark.parametrize(
    ("finish", "calls", "expected"),
    [
        ("stop", False, "end_turn"),
        ("length", False, "max_tokens"),
        ("tool_calls", True, "tool_use"),
        ("function_call", True, "tool_use"),
        ("content_filter", False, "refusal"),
        ("stop", True, "tool_use"),
        ("length", True, "max_tokens"),
        ("tool_calls", False, "end_turn"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_stop_reasons(finish: str, calls: bool, expected: str, stream: bool) -> None:
    if stream:
        deltas: list[dict[str, Any]] = [{"content": "T"}, *([{"tool_calls": [{"index": 0, **CALL}]}] if calls else [])]
        output = answer(begin({"stream": True}), chunks(*deltas, finish=finish))[2]
        (delta,) = [event for event in events(output) if event["type"] == "message_delta"]
        assert delta["delta"]["stop_reason"] == expected
    else:
        body = {"content": "T", **({"tool_calls": [CALL]} if calls else {})}
        assert json.loads(answer(begin({}), whole(body, finish))[2])["stop_reason"] == expected


def test_order_of_a_messages_stream() -> None:
    """A typed message_stop, indexes from 0, one block open at a time, one message_delta with usage."""
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm"},
        {"content": "T"},
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "a", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 1, "id": "call_2", "type": "function", "function": {"name": "b", "arguments": '{"y":2}'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    status, headers, output = answer(begin({"stream": True}), chunks(*deltas, finish="tool_calls", usage=usage))
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
    told = [event for event in events(output) if event["type"] != "ping"]
    kinds = [event["type"] for event in told]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_delta") == 1
    assert told[-1] == {"type": "message_stop"}
    assert told[-2]["usage"]["input_tokens"] == 9
    assert told[-2]["usage"]["output_tokens"] == 4
    starts = [(event["index"], event["content_block"]["type"]) for event in told if event["type"] == "content_block_start"]
    assert starts == [(0, "thinking"), (1, "text"), (2, "tool_use"), (3, "tool_use")]
    open_block = None
    for event in told:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
        elif event["type"] == "content_block_stop":
            assert open_block == event["index"]
            open_block = None
        elif event["type"] == "content_block_delta":
            assert event["index"] == open_block
    blocks = [event["content_block"] for event in told if event["type"] == "content_block_start"]
    assert [block["input"] for block in blocks if block["type"] == "tool_use"] == [{}, {}]
    json_of = {
        index: "".join(
            event["delta"]["partial_json"]
            for event in told
            if event["type"] == "content_block_delta" and event["index"] == index
        )
        for index in (2, 3)
    }
    assert json_of == {2: '{"x":1}', 3: '{"y":2}'}


def test_text_is_not_held() -> None:
    exchange = begin({"stream": True})
    exchange.upstream_head(200, {"content-type": "text/event-stream"})
    for word in ("one", "two"):
        assert word.encode() in exchange.upstream_data(chunks({"content": word}, finish=None, done=False)).output


@pytest.mark.parametrize(
    ("status", "client_status", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (401, 401, "authentication_error"),
        (402, 402, "billing_error"),
        (403, 403, "permission_error"),
        (404, 404, "not_found_error"),
        (413, 413, "request_too_large"),
        (429, 429, "rate_limit_error"),
        (500, 502, "api_error"),
        (502, 502, "api_error"),
        (503, 529, "overloaded_error"),
        (529, 529, "overloaded_error"),
        (504, 504, "timeout_error"),
    ],
)
def test_errors_for_anthropic_clients(status: int, client_status: int, kind: str) -> None:
    error = json.dumps({"error": {"message": "told", "type": "x", "code": None}}).encode()
    got, headers, output = answer(begin({"stream": True}), error, status, **{"retry-after": "7"})
    body = json.loads(output)
    assert (got, body["type"], body["error"]["type"]) == (client_status, "error", kind)
    assert "told" in body["error"]["message"]
    assert headers.get("retry-after") == "7"


@pytest.mark.parametrize(("status", "client_status"), [(401, 401), (429, 429), (404, 404), (400, 400), (500, 500)])
def test_errors_for_chat_clients(status: int, client_status: int) -> None:
    """No 5xx for a client's mistake, and retry-after passed on."""
    error = json.dumps({"error": {"message": "told", "type": "x", "param": "p", "code": "c"}}).encode()
    got, headers, output = answer(begin({"stream": True}, dialect="openai_chat"), error, status, **{"retry-after": "7"})
    body = json.loads(output)
    assert got == client_status or (status >= 500 and got >= 500)
    assert set(body["error"]) >= {"message", "type", "param", "code"}
    assert headers.get("retry-after") == "7"


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat", "openai_responses"])
def test_an_error_inside_a_200(dialect: str) -> None:
    error = json.dumps({"error": {"message": "no credit", "code": 402}}).encode()
    body = {"input": "Hi"} if dialect == "openai_responses" else {}
    assert answer(begin(body, dialect=dialect), error)[0] == 402
    streamed = b"data: " + error + b"\n\n"
    assert answer(begin({**body, "stream": True}, dialect=dialect), streamed)[0] == 402, "early enough for an honest status"


def test_an_error_in_mid_stream() -> None:
    """A known type, no message_delta, nothing behind it."""

    def after_text(then: bytes) -> list[dict[str, Any]]:
        exchange = begin({"stream": True})
        exchange.upstream_head(200, {"content-type": "text/event-stream"})
        shown = exchange.upstream_data(chunks({"content": "T"}, finish=None, done=False)).output
        return events(shown + exchange.upstream_data(then).output + exchange.upstream_end().output)

    told = after_text(b'data: {"error":{"message":"gone","code":502}}\n\n')
    assert told[-1]["type"] == "error"
    assert told[-1]["error"]["type"] == "api_error"
    assert "message_delta" not in [event["type"] for event in told]
    assert after_text(chunks(finish="error", done=False))[-1]["type"] == "error"


def test_ends() -> None:
    cut = events(answer(begin({"stream": True}), chunks({"content": "T"}, finish=None, done=False))[2])
    assert cut[-1]["type"] == "error"
    done = events(answer(begin({"stream": True}), chunks({"content": "T"}, finish=None))[2])
    assert [event["delta"]["stop_reason"] for event in done if event["type"] == "message_delta"] == ["end_turn"]


# -- a Chat client before a Chat upstream -----------------------------------------------------------------------------------


def chat_stream(body: bytes, **fields: Any) -> list[dict[str, Any]]:
    exchange = begin({"stream": True, "stream_options": {"include_usage": True}, **fields}, dialect="openai_chat")
    return events(answer(exchange, body)[2])


def test_shape_of_calls() -> None:
    parts: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "b", "arguments": "{}"}}]},
    ]
    told = chat_stream(chunks(*parts, finish="tool_calls"))
    deltas = [item["choices"][0]["delta"] for item in told if item["choices"]]
    heads = [entry for delta in deltas for entry in delta.get("tool_calls", ()) if "id" in entry]
    assert [(entry["index"], entry["id"], entry["type"], entry["function"]["name"]) for entry in heads] == [
        (0, "c1", "function", "a"),
        (1, "c2", "function", "b"),
    ]
    assert sum("role" in delta for delta in deltas) == 1


def test_base_fields_survive() -> None:
    head = {
        "id": "gen-9",
        "object": "chat.completion.chunk",
        "created": 77,
        "model": "up",
        "provider": "P",
        "system_fingerprint": "fp",
    }
    spoken = {"index": 0, "delta": {"role": "assistant", "content": "x"}, "finish_reason": None, "logprobs": {"content": []}}
    records = [
        {**head, "choices": [spoken]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": "STOP"}]},
    ]  # fmt: skip
    body = "".join(f"data: {json.dumps(record)}\n\n" for record in records).encode() + b"data: [DONE]\n\n"
    told = chat_stream(body)
    assert {item["id"] for item in told} == {"gen-9"}
    assert {item["created"] for item in told} == {77}
    assert all(item["provider"] == "P" and item["system_fingerprint"] == "fp" for item in told if item["choices"])
    text_of = json.dumps(told)
    assert "native_finish_reason" in text_of
    assert '"logprobs": {"content": []}' in text_of


def test_finish() -> None:
    """`stop` becomes tool_calls, length stays, one finish chunk, usage behind it."""
    called = {"tool_calls": [{"index": 0, **CALL}]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    for given, expected in (("stop", "tool_calls"), ("length", "length")):
        told = chat_stream(chunks({"role": "assistant"}, called, finish=given, usage=usage))
        finishes = [item["choices"][0]["finish_reason"] for item in told if item["choices"]]
        assert [finish for finish in finishes if finish] == [expected]
        assert told[-1]["choices"] == []
        assert told[-1]["usage"]["total_tokens"] == 2


def test_text_finish_and_usage_in_one_chunk() -> None:
    choice = {"index": 0, "delta": {"role": "assistant", "content": "T"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    record = {"id": "g", "object": "chat.completion.chunk", "created": 1, "model": "u", "choices": [choice], "usage": usage}
    told = chat_stream(f"data: {json.dumps(record)}\n\ndata: [DONE]\n\n".encode())
    assert "".join(item["choices"][0]["delta"].get("content") or "" for item in told if item["choices"]) == "T"
    assert [item["choices"][0]["finish_reason"] for item in told if item["choices"]][-1] == "stop"
    assert told[-1]["usage"]["total_tokens"] == 2


def test_choices_apart() -> None:
    head = {"id": "g", "object": "chat.completion.chunk", "created": 1, "model": "u"}
    records = [
        {**head, "choices": [{"index": index, "delta": {"content": word}, "finish_reason": None}]}
        for index, word in ((0, "a"), (1, "x"), (0, "b"), (1, "y"))
    ]
    records += [{**head, "choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]} for index in (1, 0)]
    body = "".join(f"data: {json.dumps(record)}\n\n" for record in records).encode() + b"data: [DONE]\n\n"
    told = chat_stream(body, n=2)
    for index, text_of in ((0, "ab"), (1, "xy")):
        own = [choice for item in told for choice in item["choices"] if choice["index"] == index]
        assert "".join(choice["delta"].get("content") or "" for choice in own) == text_of
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == ["stop"]


def test_what_is_not_json_is_dropped() -> None:
    body = b"data: {nope\n\n" + chunks({"content": "T"}) + b"data: more\n\n"
    assert b"nope" not in json.dumps(chat_stream(body)).encode()


@pytest.mark.parametrize("fields", [("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content")])
def test_reasoning_keeps_its_fields(fields: tuple[str, ...]) -> None:
    parts = [dict.fromkeys(fields, piece) for piece in ("one ", "two")]
    told = chat_stream(chunks({"role": "assistant"}, *parts, {"content": "T"}))
    for field in ("reasoning", "reasoning_content"):
        joined = "".join(item["choices"][0]["delta"].get(field) or "" for item in told if item["choices"])
        assert joined == ("one two" if field in fields else "")


# -- what must never happen -------------------------------------------------------------------------------------------------


def test_a_broken_call_never_runs() -> None:
    """No `{}` and no null in place of arguments that do not parse: an error, whole and streamed, for every client."""
    broken = {**CALL, "function": {"name": "a", "arguments": '{"x": nope'}}
    for dialect in ("anthropic_messages", "openai_chat", "openai_responses"):
        fields = {"input": "Hi"} if dialect == "openai_responses" else {}
        status, _, output = answer(
            begin(fields, dialect=dialect), whole({"content": None, "tool_calls": [broken]}, "tool_calls")
        )
        assert status == 502, dialect
        assert b"tool_use" not in output
        streamed = begin({**fields, "stream": True}, dialect=dialect)
        told = answer(streamed, chunks({"content": "T"}, {"tool_calls": [{"index": 0, **broken}]}, finish="tool_calls"))[2]
        assert b"error" in told or b"response.failed" in told
        assert b'"content_block_stop","index":1' not in told
        assert b"message_stop" not in told
        assert b"response.completed" not in told


def test_arguments_are_the_models_own_text() -> None:
    """Number forms, key order, duplicate keys and escapes survive into history and answers."""
    own = '{"b":1.0,"a":1e3,"a":12345678901234567890,"u":"\\u00e9"}'
    call: dict[str, Any] = {**CALL, "function": {"name": "a", "arguments": own}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    turns = [{"role": "user", "content": "Hi"}, message, {"role": "tool", "tool_call_id": "call_1", "content": "ok"}]
    body = sent({"messages": turns, "temperature": 3.0}, dialect="openai_chat")
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == own
    told = events(answer(begin({"stream": True}), chunks({"tool_calls": [{"index": 0, **call}]}))[2])
    assert "".join(item["delta"].get("partial_json", "") for item in told if item["type"] == "content_block_delta") == own


def test_made_ids_are_short_enough() -> None:
    call = {"index": 0, "type": "function", "function": {"name": "a", "arguments": "{}"}}
    told = events(answer(begin({"stream": True}), chunks({"tool_calls": [call]}))[2])
    (block,) = [item["content_block"] for item in told if item["type"] == "content_block_start"]
    assert 8 < len(block["id"]) <= 40


def test_ids_do_not_come_from_the_clock() -> None:
    call = {"index": 0, "type": "function", "function": {"name": "a", "arguments": "{}"}}
    outputs = {answer(begin({"stream": True}), chunks({"tool_calls": [call]}))[2] for _ in range(2)}
    assert len(outputs) == 1


def test_every_refusal_is_one_of_ours() -> None:
    """No exception but ours leaves the building of an exchange."""
    for body in ({"n": 3, "messages": []}, {"messages": [{"role": "user", "content": [{"type": "image"}]}]}):
        with pytest.raises(AthenaError):
            begin(body)

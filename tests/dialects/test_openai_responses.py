"""The Responses dialect where the generic runners do not look: the exact event sequence as the official SDK and Codex need it,
answers of odd servers, and errors. Requests have a file of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from openai.types.responses import Response

from athena.dialects.base import DecodeContext, EncodeContext, ModelEntry
from athena.dialects.openai_responses import DIALECT
from athena.errors import InvalidRequest
from athena.formats.bodies.native_arguments import ArgumentMender
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
    FinishKind,
    KeepAlive,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    WholePart,
)
from athena.model.parts import (
    Base64,
    Citation,
    Foreign,
    Image,
    Opaque,
    Refusal,
    Text,
)
from athena.model.profile import Profile
from athena.model.request import Request
from athena.translate import translate_request

USAGE = Usage(input_total=20, output_total=9, cache_read=4, cache_write=2, reasoning=3)
STATE = Opaque(family="openai", kind="encrypted", payload="gAAAA")
CLIENT = {
    "model": "gpt-5.1",
    "input": "Hi",
    "stream": True,
    "instructions": "Be brief.",
    "temperature": 0.5,
    "max_output_tokens": 100,
    "metadata": {"a": "b"},
    "text": {"verbosity": "low"},
    "reasoning": {"effort": "low"},
    "tools": [
        {"type": "function", "name": "a", "parameters": {"type": "object", "properties": {}}, "strict": False},
        {"type": "custom", "name": "patch"},
    ],
    "tool_choice": {"type": "function", "name": "a"},
    "parallel_tool_calls": False,
}


def call(number: int, name: str, arguments: str, **fields: Any) -> list[Event]:
    half = len(arguments) // 2
    return [
        ToolCallStart(number, f"call_{number}", name, **fields),
        ToolCallDelta(number, arguments[:half]),
        ToolCallDelta(number, arguments[half:]),
        ToolCallComplete(number, f"call_{number}", name, arguments, **fields),
    ]


def encode(events: list[Event], *, stream: bool = True, body: dict[str, Any] | None = None, **context: Any) -> bytes:
    request = DIALECT.decode_request(body or CLIENT)
    encoder = DIALECT.encoder(EncodeContext(request=request, seed="s", created=1_700_000_000, **context), stream=stream)
    return b"".join(encoder.feed([event]) for event in events)


def frames(data: bytes) -> list[dict[str, Any]]:
    """The payloads of a stream; each frame names its event as its payload does."""
    found: list[dict[str, Any]] = []
    for block in data.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        event, payload = block.split("\n")
        found.append(json.loads(payload.removeprefix("data: ")))
        assert event == f"event: {found[-1]['type']}"
    return found


def written(payloads: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {item['type']}\ndata: {json.dumps(item)}\n\n".encode() for item in payloads)


def sdk(data: bytes, *, stream: bool = True) -> openai.OpenAI:
    kind = "text/event-stream" if stream else "application/json"
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, content=data, headers={"content-type": kind}))
    return openai.OpenAI(api_key="k", base_url="http://test/v1", max_retries=0, http_client=httpx2.Client(transport=transport))


def sdk_reads(data: bytes) -> Any:
    with sdk(data).responses.stream(model="m", input="Hi") as events:
        for _ in events:
            pass
        return events.get_final_response()


FULL: list[Event] = [
    Start(id="x", model="upstream"),
    ThinkingDelta("Let me "),
    ThinkingDelta("see.", signature=STATE),
    TextDelta("Hello "),
    TextDelta("there"),
    WholePart(Citation(url="https://example.org", title="T", start=0, end=5)),
    *call(0, "a", '{"p": 1}'),
    *call(1, "patch", "*** Begin\n", kind="custom"),
    *call(2, "b", "{}", namespace="ns"),
    TextDelta("Bye"),
    TextDelta("No.", refusal=True),
    Done(Finish("tool"), usage=USAGE),
]


# -- the stream, as the SDK and Codex need it ---------------------------------------------------------------------------------


def test_the_whole_sequence() -> None:
    payloads = frames(encode(FULL))
    assert [item["sequence_number"] for item in payloads] == list(range(len(payloads)))
    assert [item["type"].removeprefix("response.") for item in payloads] == [
        "created", "in_progress",
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.annotation.added",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.delta", "custom_tool_call_input.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "content_part.added", "refusal.delta", "refusal.done", "content_part.done", "output_item.done",
        "completed",
    ]  # fmt: skip


def test_items_are_announced_finished_and_repeated_with_one_identity() -> None:
    payloads = frames(encode(FULL))
    added = {item["output_index"]: item["item"] for item in payloads if item["type"] == "response.output_item.added"}
    done = {item["output_index"]: item["item"] for item in payloads if item["type"] == "response.output_item.done"}
    assert list(added) == list(done) == [0, 1, 2, 3, 4, 5]
    assert payloads[-1]["response"]["output"] == list(done.values())
    for index, item in added.items():
        assert item["id"] == done[index]["id"]
        assert item["status"] == "in_progress"
        assert done[index]["status"] == "completed"
        for payload in payloads:
            if payload.get("output_index") == index and "item_id" in payload:
                assert payload["item_id"] == item["id"]
    prefixes = [item["id"].partition("_")[0] for item in added.values()]
    assert prefixes == ["rs", "msg", "fc", "ctc", "fc", "msg"]
    assert len({item["id"] for item in added.values()}) == 6
    assert added[1]["content"] == []
    assert added[2]["arguments"] == ""
    assert added[3]["input"] == ""
    assert done[4]["namespace"] == "ns"
    assert done[0]["encrypted_content"] == "gAAAA"
    assert "encrypted_content" not in added[0]


def test_ids_come_from_the_seed() -> None:
    assert encode(FULL) == encode(FULL)
    request = DIALECT.decode_request(CLIENT)
    other = DIALECT.encoder(EncodeContext(request=request, seed="t"), stream=True).feed(FULL)
    assert frames(other)[0]["response"]["id"] != frames(encode(FULL))[0]["response"]["id"]


def test_sdk_reads_the_stream_and_the_whole_alike() -> None:
    streamed = sdk_reads(encode(FULL))
    assert streamed.output_text == "Hello thereBye"
    assert [item.type for item in streamed.output] == [
        "reasoning", "message", "function_call", "custom_tool_call", "function_call", "message",
    ]  # fmt: skip
    assert streamed.output[0].summary[0].text == "Let me see."
    assert (streamed.output[2].call_id, streamed.output[2].arguments) == ("call_0", '{"p": 1}')
    assert streamed.output[3].input == "*** Begin\n"
    assert streamed.output[1].content[0].annotations[0].url == "https://example.org"
    assert streamed.output[5].content[1].refusal == "No."
    whole = sdk(encode(FULL, stream=False), stream=False).responses.create(model="m", input="Hi")
    assert whole.output_text == streamed.output_text
    assert json.loads(encode(FULL, stream=False)) == frames(encode(FULL))[-1]["response"]


def test_every_lifecycle_object_is_a_valid_response_that_echoes_the_request() -> None:
    for payload in frames(encode(FULL)):
        if "response" not in payload:
            continue
        response = Response.model_validate(payload["response"], strict=True)
        assert response.created_at == 1_700_000_000
        assert response.model == "gpt-5.1"
        assert (response.instructions, response.temperature, response.max_output_tokens) == ("Be brief.", 0.5, 100)
        assert response.metadata == {"a": "b"}
        assert response.parallel_tool_calls is False
        assert [tool.type for tool in response.tools] == ["function", "custom"]
        assert payload["response"]["tool_choice"] == {"type": "function", "name": "a"}
        assert payload["response"]["text"] == {"format": {"type": "text"}, "verbosity": "low"}
        assert payload["response"]["store"] is False


def test_a_plain_request_still_gives_a_valid_response() -> None:
    encoder = DIALECT.encoder(EncodeContext(request=Request(dialect="openai_chat", model="m")), stream=False)
    body = encoder.feed([TextDelta("Hi"), Done(Finish())])
    assert Response.model_validate_json(body).output_text == "Hi"


def test_usage_is_always_complete() -> None:
    def usage(last: Done, **context: Any) -> dict[str, Any]:
        found: dict[str, Any] = frames(encode([TextDelta("x"), last], **context))[-1]["response"]["usage"]
        return found

    assert usage(Done(Finish(), usage=USAGE)) == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 29,
    }
    assert usage(Done(Finish()), input_tokens=77)["input_tokens"] == 77
    assert usage(Done(Finish()))["output_tokens_details"] == {"reasoning_tokens": 0}
    raw = {"input_tokens": 20, "input_tokens_details": None, "cost": 0.1, "total_tokens": 30}
    kept = usage(Done(Finish(), usage=msgspec.structs.replace(USAGE, raw=raw)), same_dialect=True)
    assert (kept["cost"], kept["total_tokens"], kept["input_tokens_details"]["cached_tokens"]) == (0.1, 30, 4)


def test_interleaved_calls_stay_interleaved_and_unmixed() -> None:
    first, second = call(0, "a", '{"p": 1}'), call(1, "b", '{"p": 2}')
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    response = sdk_reads(encode([*mixed, Done(Finish("tool"), usage=USAGE)]))
    assert [(item.call_id, item.arguments) for item in response.output] == [("call_0", '{"p": 1}'), ("call_1", '{"p": 2}')]


def test_a_call_without_deltas_shows_its_arguments() -> None:
    events: list[Event] = [ToolCallStart(0, "c", "a"), ToolCallComplete(0, "c", "a", '{"p": 1}'), Done(Finish("tool"))]
    deltas = [item["delta"] for item in frames(encode(events)) if item["type"].endswith(".delta")]
    assert deltas == ['{"p": 1}']


def test_a_cut_call_is_never_done() -> None:
    events: list[Event] = [
        TextDelta("Wait"),
        ToolCallStart(0, "c", "a"),
        ToolCallDelta(0, '{"ci'),
        Error("cut", code="truncated_call", fatal=False, call=0),
        Done(Finish("length"), usage=USAGE),
    ]
    payloads = frames(encode(events))
    assert [item["item"]["type"] for item in payloads if item["type"] == "response.output_item.done"] == ["message"]
    last = payloads[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in last["response"]["output"]] == ["message"]
    with pytest.raises(RuntimeError, match=r"response\.completed"):
        sdk_reads(encode(events))
    assert "function_call" not in encode(events, stream=False).decode().partition('"output":')[2].partition('"usage"')[0]


def test_an_unfinished_call_never_hides_in_a_completed_answer() -> None:
    events: list[Event] = [ToolCallStart(0, "c", "a"), ToolCallDelta(0, "{"), Done(Finish("stop"))]
    assert frames(encode(events))[-1]["type"] == "response.failed"
    assert "error" in json.loads(encode(events, stream=False))


@pytest.mark.parametrize(
    ("kind", "terminal", "reason"),
    [
        ("stop", "completed", None),
        ("stop_sequence", "completed", None),
        ("tool", "completed", None),
        ("pause", "completed", None),
        ("malformed", "completed", None),
        ("refusal", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("context", "incomplete", "max_output_tokens"),
        ("continuation", "incomplete", "max_output_tokens"),
        ("filter", "incomplete", "content_filter"),
    ],
)
def test_finish_reasons(kind: Any, terminal: str, reason: str | None) -> None:
    last = frames(encode([TextDelta("x"), Done(Finish(kind), usage=USAGE)]))[-1]
    assert last["type"] == f"response.{terminal}"
    assert last["response"]["status"] == terminal
    assert (last["response"]["incomplete_details"] or {}).get("reason") == reason


def test_a_refusal_that_is_only_a_finish_becomes_a_part() -> None:
    response = sdk_reads(encode([Done(Finish("refusal", details={"explanation": "Not this."}))]))
    assert response.output[0].content[0].refusal == "Not this."
    assert sdk_reads(encode([Done(Finish("refusal"))])).output[0].content[0].refusal


def test_nothing_follows_a_terminal_event() -> None:
    encoder = DIALECT.encoder(EncodeContext(request=DIALECT.decode_request(CLIENT)), stream=True)
    assert encoder.feed([Done(Finish()), TextDelta("late")]).endswith(b"}\n\n")
    assert encoder.feed([TextDelta("late"), Error("late")]) == b""


def test_keep_alive_is_a_comment_that_the_sdk_skips() -> None:
    data = encode([Start(), KeepAlive(), TextDelta("Hi"), Done(Finish())])
    assert b": keep-alive\n\n" in data
    assert DIALECT.keep_alive.startswith(b":")
    first, rest = data.split(b"\n\n", 1)
    assert sdk_reads(DIALECT.keep_alive + first + b"\n\n" + DIALECT.keep_alive + rest).output_text == "Hi"
    assert encode([KeepAlive()]) == b""


def drop(kind: str) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda payloads: [item for item in payloads if item["type"] != kind]


def other_id(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    changed_last = {**payloads[-1], "response": {**payloads[-1]["response"], "id": "resp_other"}}
    return [*payloads[:-1], changed_last]


def other_item(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**item, "item": {**item["item"], "id": "msg_other"}} if item["type"] == "response.output_item.done" else item
        for item in payloads
    ]


def unfinished(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last = {**payloads[-1], "response": {**payloads[-1]["response"], "output": []}}
    return [*drop("response.output_item.done")(payloads)[:-1], last]


def nested_error(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*payloads[:-1], {"type": "error", "error": {"message": "m", "code": "server_error"}}]


@pytest.mark.parametrize(
    "damage",
    [
        drop("response.created"),
        drop("response.output_item.added"),
        drop("response.content_part.added"),
        drop("response.completed"),
        other_id,
        other_item,
        unfinished,
        nested_error,
    ],
)
def test_the_sdk_refuses_any_less(damage: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Each of these facts of the documents was seen with the SDK; should one change, our sequence may be reconsidered."""
    payloads = frames(encode([TextDelta("Hi"), Done(Finish(), usage=USAGE)]))
    assert sdk_reads(written(payloads)).output_text == "Hi"
    with pytest.raises((RuntimeError, openai.OpenAIError, IndexError)):
        sdk_reads(written(damage(payloads)))


def test_codex_needs_only_done_items_and_completed() -> None:
    """Codex reads two kinds of event and checks their fields hard."""
    payloads = frames(encode(FULL))
    for item in (payload["item"] for payload in payloads if payload["type"] == "response.output_item.done"):
        if item["type"] == "function_call":
            assert item["name"]
            assert item["call_id"]
            assert isinstance(item["arguments"], str)
        elif item["type"] == "custom_tool_call":
            assert isinstance(item["input"], str)
        elif item["type"] == "reasoning":
            assert isinstance(item["summary"], list)
        else:
            assert item["role"] == "assistant"
            assert all(part["type"] in ("output_text", "refusal") for part in item["content"])
    usage = payloads[-1]["response"]["usage"]
    assert {"input_tokens", "output_tokens", "total_tokens"} <= usage.keys()
    assert "cached_tokens" in usage["input_tokens_details"]
    assert "reasoning_tokens" in usage["output_tokens_details"]
    assert payloads[-1]["response"]["id"] == payloads[0]["response"]["id"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Error("m", kind="context_length"), "context_length_exceeded"),
        (Error("m", kind="billing"), "insufficient_quota"),
        (Error("m", kind="billing", code="usage_not_included"), "usage_not_included"),
        (Error("m", kind="invalid"), "invalid_prompt"),
        (Error("m", kind="content_policy"), "invalid_prompt"),
        (Error("m", kind="overloaded"), "server_is_overloaded"),
        (Error("m", kind="overloaded", code="slow_down"), "slow_down"),
        (Error("m", kind="rate_limit"), "rate_limit_exceeded"),
        (Error("m", kind="timeout"), "server_error"),
        (Error("m", kind="upstream", code="upstream_closed"), "server_error"),
    ],
)
@pytest.mark.parametrize("before", [[], [Start(), TextDelta("Part"), ToolCallStart(0, "c", "a")]])
def test_failed_codes_mean_something_to_codex(error: Error, code: str, before: list[Event]) -> None:
    payloads = frames(encode([*before, error]))
    assert [item["type"] for item in payloads[:2]] == ["response.created", "response.in_progress"]
    last = payloads[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": code, "message": "m"}
    assert [item["item"]["type"] for item in payloads if item["type"] == "response.output_item.done"] in ([], ["message"])
    with pytest.raises(RuntimeError):
        sdk_reads(encode([*before, error]))


def test_rate_limits_say_how_long_to_wait() -> None:
    def told(error: Error) -> str:
        message: str = frames(encode([error]))[-1]["response"]["error"]["message"]
        return message

    assert told(Error("Slow down", kind="rate_limit", retry_after=1.5)) == "Slow down. Please try again in 1.5s."
    assert told(Error("try again in 2s", kind="rate_limit", retry_after=2)) == "try again in 2s"


def test_redacted_state_is_a_reasoning_item_without_summary() -> None:
    redacted = Opaque(family="anthropic", kind="redacted", payload="gw1.x.y")
    response = frames(encode([ThinkingDelta(signature=redacted), TextDelta("Hi"), Done(Finish())]))[-1]["response"]
    assert response["output"][0]["summary"] == []
    assert response["output"][0]["encrypted_content"] == "gw1.x.y"


def test_two_signed_blocks_are_two_items() -> None:
    events: list[Event] = [ThinkingDelta("a", signature=STATE), ThinkingDelta("b", signature=STATE), Done(Finish())]
    assert [item["summary"][0]["text"] for item in frames(encode(events))[-1]["response"]["output"]] == ["a", "b"]


def test_own_upstream_keeps_its_ids_fields_and_raw_reasoning() -> None:
    foreign = Foreign(kind="web_search_call", dialect="openai_responses", raw={"type": "web_search_call", "id": "ws_1"})
    events: list[Event] = [
        Start(id="resp_up", created=5, extras={"service_tier": "flex", "billing": {"payer": "x"}}),
        ThinkingDelta("raw", item_id="rs_up"),
        ThinkingDelta(signature=STATE, item_id="rs_up"),
        Extra(fields={"phase": "commentary"}, choice=0, delta=True),
        TextDelta("Hi"),
        *call(0, "a", "{}", item_id="fc_up"),
        WholePart(foreign),
        Extra(fields={"service_tier": "priority"}),
        Done(Finish("tool")),
    ]
    response = frames(encode(events, same_dialect=True))[-1]["response"]
    assert (response["id"], response["created_at"], response["billing"]) == ("resp_up", 5, {"payer": "x"})
    assert response["service_tier"] == "priority"
    reasoning, message, function, search = response["output"]
    assert (reasoning["id"], reasoning["content"][0]["text"], reasoning["summary"]) == ("rs_up", "raw", [])
    assert message["phase"] == "commentary"
    assert function["id"] == "fc_up"
    assert search == foreign.raw
    abroad = frames(encode(events))[-1]["response"]
    assert abroad["id"] != "resp_up"
    assert abroad["output"][0]["summary"][0]["text"] == "raw"
    assert abroad["output"][2]["id"] != "fc_up"


def test_parts_of_other_dialects() -> None:
    events: list[Event] = [
        WholePart(Foreign(kind="server_tool_use", dialect="anthropic_messages", raw={"type": "server_tool_use"})),
        WholePart(Image(source=Base64("image/png", "iVBORw0="))),
        WholePart(Text(text="T")),
        WholePart(Refusal(text="R")),
        WholePart(Citation(kind="char_location", raw={"type": "char_location"})),
        TextDelta("other choice", choice=1),
        ThinkingDelta("other choice", choice=1),
        Done(Finish("stop"), choice=1, last=False),
        Done(Finish("stop")),
    ]
    image, message = sdk_reads(encode(events)).output
    assert (image.type, image.result) == ("image_generation_call", "iVBORw0=")
    assert [part.type for part in message.content] == ["output_text", "refusal"]


def test_a_lone_surrogate_does_not_end_the_stream() -> None:
    assert sdk_reads(encode([TextDelta("a\ud83d b"), Done(Finish())])).output_text == "a\ufffd b"


def test_work_per_delta_does_not_grow() -> None:
    encoder = DIALECT.encoder(EncodeContext(request=DIALECT.decode_request(CLIENT)), stream=True)
    encoder.feed([TextDelta("x")])
    sizes = {len(encoder.feed([TextDelta("x" * 10)])) for _ in range(50)}
    assert max(sizes) - min(sizes) <= 1


# -- answers of upstreams ---------------------------------------------------------------------------------------------------


def decode(data: bytes, *, stream: bool = True, **context: Any) -> list[Event]:
    decoder = DIALECT.decoder(DecodeContext(seed="s", **context), stream=stream)
    return decoder.feed(data) + decoder.close()


def test_state_belongs_to_the_upstreams_family_and_item() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "S"}], "encrypted_content": "E"}
    body = json.dumps({"object": "response", "status": "completed", "output": [item]}).encode()
    for family, expected in (("xai", "xai"), ("openai", "openai"), ("unknown", "look_alike")):
        events = decode(body, stream=False, profile=Profile(name="look_alike", family=family))
        signed = [event for event in events if isinstance(event, ThinkingDelta)][-1]
        assert signed.signature == Opaque(family=expected, kind="encrypted", payload="E", item_id="rs_1")
        assert signed.item_id == "rs_1"


def test_summary_and_raw_text_are_told_apart() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "S"}],
        "content": [{"type": "reasoning_text", "text": "R"}],
    }
    body = json.dumps({"object": "response", "status": "completed", "output": [item]}).encode()
    thoughts = [event for event in decode(body, stream=False) if isinstance(event, ThinkingDelta)]
    assert [(event.text, event.summary) for event in thoughts] == [("R", False), ("S", True)]


def test_a_missing_end_of_text_is_added_from_the_finished_item() -> None:
    payloads: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hel"},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {
                "type": "message",
                "content": [
                    {"type": "output_text", "text": "Hello", "annotations": [{"type": "url_citation", "url": "https://e.org"}]},
                    {"type": "refusal", "refusal": "No"},
                ],
            },
        },
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}},
    ]
    events = decode(written(payloads))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hel", "lo", "No"]
    assert [event.part.url for event in events if isinstance(event, WholePart) and isinstance(event.part, Citation)] == [
        "https://e.org"
    ]


def item_events(index: int, item: dict[str, Any], key: str, pieces: list[str]) -> list[dict[str, Any]]:
    """A call as an upstream streams it."""
    kind = "custom_tool_call_input" if item["type"] == "custom_tool_call" else "function_call_arguments"
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, key: ""}},
        *({"type": f"response.{kind}.delta", "output_index": index, "delta": piece} for piece in pieces),
        {"type": f"response.{kind}.done", "output_index": index, key: "".join(pieces)},
        {"type": "response.output_item.done", "output_index": index, "item": {**item, key: "".join(pieces)}},
    ]


def test_free_form_calls_are_read_as_text() -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "namespace": "ns"}
    events = item_events(0, item, "input", ["*** Begin", " Patch\n"])
    completed = {"type": "response.completed", "response": {"id": "r", "output": [events[-1]["item"]]}}
    calls = [event for event in decode(written([*events, completed])) if isinstance(event, ToolCallComplete)]
    assert calls == [ToolCallComplete(0, "c1", "patch", "*** Begin Patch\n", 0, "custom", "ns", None, "ctc_1")]
    incomplete = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}
    cut = decode(written([*events[:2], incomplete]))
    assert not any(isinstance(event, ToolCallComplete) for event in cut)
    assert [event.code for event in cut if isinstance(event, Error)] == ["truncated_call"]
    assert isinstance(cut[-1], Done)


def test_calls_may_end_in_another_order_than_they_began() -> None:
    first = item_events(0, {"type": "function_call", "call_id": "c0", "name": "a"}, "arguments", ['{"p"', ":0}"])
    second = item_events(1, {"type": "function_call", "call_id": "c1", "name": "b"}, "arguments", ['{"p"', ":1}"])
    payloads = [first[0], second[0], first[1], second[1], second[2], first[2], *second[3:], *first[3:]]
    events = decode(written([*payloads, {"type": "response.completed", "response": {"id": "r"}}]))
    calls = [(event.call, event.id, event.arguments) for event in events if isinstance(event, ToolCallComplete)]
    assert calls == [(1, "c1", '{"p":1}'), (0, "c0", '{"p":0}')]


def test_extras_travel_only_between_equals() -> None:
    item = {"type": "message", "phase": "final_answer", "content": [{"type": "output_text", "text": "x"}]}
    body = json.dumps(
        {"object": "response", "id": "resp_1", "status": "completed", "output": [item], "service_tier": "flex", "billing": 1}
    ).encode()
    kept = decode(body, stream=False, keep_extras=True)
    assert kept[0] == Start(id="resp_1", extras={"service_tier": "flex", "billing": 1})
    assert Extra(fields={"phase": "final_answer"}, choice=0, delta=True) in kept
    assert not any(isinstance(event, Extra) for event in decode(body, stream=False))


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "filter"),
        ({"reason": "max_messages"}, "pause"),
        ({"reason": "steered"}, "pause"),
        (None, "length"),
    ],
)
def test_incomplete_reasons(details: Any, kind: str) -> None:
    body = json.dumps({"object": "response", "status": "incomplete", "incomplete_details": details, "output": []}).encode()
    last = decode(body, stream=False)[-1]
    assert isinstance(last, Done)
    assert last.finish.kind == kind


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"hello": 1}',
        b"<html>",
        b'{"object": "response", "status": "in_progress", "output": []}',
        b'{"object": "response", "status": "queued", "output": []}',
    ],
)
def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    assert [event.code for event in decode(body, stream=False) if isinstance(event, Error)] == ["upstream_protocol"]


@pytest.mark.parametrize(
    ("payload", "kind", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "try again in 20ms"}, "rate_limit", "rate_limit_exceeded"),
        ({"type": "error", "error": {"type": "server_error", "message": "m"}}, "upstream", "server_error"),
        ({"type": "error", "error": "plain words"}, "upstream", "upstream_error"),
        ({"error": {"code": 429, "message": "m"}}, "rate_limit", "upstream_error"),
        ({"type": "error", "code": "invalid_image_url", "message": "m"}, "invalid", "invalid_image_url"),
        ({"type": "error", "message": "exceeds the context window"}, "context_length", "upstream_error"),
        ({"type": "response.failed", "response": {"error": {"code": "slow_down", "message": "m"}}}, "overloaded", "slow_down"),
        ({"type": "response.failed", "response": None}, "upstream", "upstream_error"),
    ],
)
def test_errors_in_any_form(payload: dict[str, Any], kind: str, code: str) -> None:
    data = f"data: {json.dumps(payload)}\n\n".encode()
    last = decode(data)[-1]
    assert isinstance(last, Error)
    assert (last.kind, last.code) == (kind, code)
    if kind == "rate_limit" and "try again" in last.message:
        assert last.retry_after == pytest.approx(0.02)


# -- the rest ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (Error("m", kind="invalid", code="invalid_request", param="input"), 400, "invalid_request_error", "invalid_request"),
        (Error("m", kind="context_length"), 400, "invalid_request_error", "context_length_exceeded"),
        (Error("m", kind="auth"), 401, "invalid_request_error", "invalid_api_key"),
        (Error("m", kind="billing"), 402, "insufficient_quota", "insufficient_quota"),
        (Error("m", kind="not_found"), 404, "invalid_request_error", "model_not_found"),
        (Error("m", kind="rate_limit", retry_after=1.5), 429, "rate_limit_error", "rate_limit_exceeded"),
        (Error("m", kind="overloaded"), 503, "server_error", "server_is_overloaded"),
        (Error("m", kind="timeout"), 504, "server_error", "timeout"),
        (Error("m"), 502, "server_error", "server_error"),
    ],
)
def test_http_errors(error: Error, status: int, kind: str, code: str) -> None:
    answer = DIALECT.encode_error(error)
    assert answer.status == status
    assert json.loads(answer.body)["error"] == {"message": "m", "type": kind, "param": error.param, "code": code}
    if error.retry_after is not None:
        assert answer.headers == {"retry-after": "2", "retry-after-ms": "1500"}
    again = DIALECT.decode_error(status, answer.headers, answer.body)
    assert again.kind == error.kind
    assert again.retry_after == error.retry_after


def test_a_quota_error_is_no_rate_limit() -> None:
    body = b'{"error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}}'
    assert DIALECT.decode_error(429, {}, body).kind == "billing"
    assert DIALECT.decode_error(500, {}, b"<html>").kind == "upstream"


def test_whole_errors_are_error_bodies() -> None:
    assert json.loads(encode([TextDelta("x"), Error("m", kind="overloaded")], stream=False))["error"]["type"] == "server_error"


def test_models_and_counts() -> None:
    listed = DIALECT.encode_models([ModelEntry("m", 5, "me")])
    assert listed == {"object": "list", "data": [{"id": "m", "object": "model", "created": 5, "owned_by": "me"}]}
    assert DIALECT.encode_count(7) == {"object": "response.input_tokens", "input_tokens": 7}
    request = DIALECT.decode_count_request({"input": "Hi", "tools": [{"type": "function", "name": "f"}]})
    assert (request.model, len(request.turns), len(request.tools)) == ("", 1, 1)
    with pytest.raises(InvalidRequest):
        DIALECT.decode_count_request({"input": 5})


def test_item_ids_have_their_types_shape_for_clients_too() -> None:
    """A look-alike's item ids would be refused by the vendor after a change of servers; the ids of calls stay."""
    events: list[Event] = [
        ToolCallStart(0, "call_1", "f", item_id="call_1"),
        ToolCallComplete(0, "call_1", "f", "{}", item_id="call_1"),
        ToolCallStart(1, "call_2", "f", item_id="fc_2"),
        ToolCallComplete(1, "call_2", "f", "{}", item_id="fc_2"),
        Done(Finish("tool")),
    ]
    output = frames(encode(events, same_dialect=True))[-1]["response"]["output"]
    assert [item["call_id"] for item in output] == ["call_1", "call_2"]
    assert output[0]["id"].startswith("fc_")
    assert output[1]["id"] == "fc_2"


# -- the Open Responses standard ----------------------------------------------------------------------------------------------

NUMBERS = {
    "temperature": 1.0, "top_p": 1.0, "top_logprobs": 0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip


def answered(request: dict[str, Any], finish: Finish) -> list[dict[str, Any]]:
    asked = DIALECT.decode_request({"model": "m", "input": "Hi", **request}, stream=True)
    context = EncodeContext(request=asked, seed="s", created=1)
    encoder = DIALECT.encoder(context, stream=True)
    return frames(encoder.feed([Start("u", "m"), TextDelta("Hel"), Done(finish)]))


def test_every_lifecycle_event_says_what_was_used() -> None:
    tool = {"type": "function", "name": "f"}
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    told = answered({"tools": [tool], "text": {"format": form}, "temperature": 0.25, "presence_penalty": 0.5}, Finish("stop"))
    lifecycle = [frame["response"] for frame in told if "response" in frame]
    assert [response["status"] for response in lifecycle] == ["in_progress", "in_progress", "completed"]
    for response in lifecycle:
        assert {key: response[key] for key in NUMBERS} == {**NUMBERS, "temperature": 0.25, "presence_penalty": 0.5}
        assert response["tools"] == [{**tool, "description": None, "parameters": None, "strict": False}]
        assert response["text"]["format"] == {**form, "description": None, "strict": False}
        Response.model_validate(response)


@pytest.mark.parametrize(
    ("finish", "status"), [("length", "incomplete"), ("filter", "incomplete"), ("stop", "completed"), ("tool", "completed")]
)
def test_an_item_that_was_cut_says_so(finish: FinishKind, status: str) -> None:
    told = answered({}, Finish(finish))
    (done,) = [frame["item"] for frame in told if frame["type"] == "response.output_item.done"]
    assert done["status"] == told[-1]["response"]["output"][0]["status"] == told[-1]["response"]["status"] == status


def test_penalties_reach_a_chat_upstream() -> None:
    body = {"model": "m", "input": "Hi", "presence_penalty": 0.5, "frequency_penalty": 0.25}
    sent_body = translate_request(body, source="openai_responses", target="openai_chat")
    assert (sent_body.body["presence_penalty"], sent_body.body["frequency_penalty"]) == (0.5, 0.25)
    assert sent_body.warnings == ()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("told", "limit", "spent", "finish"),
    [(True, 12, 12, "length"), (True, 12, 11, "stop"), (True, None, 12, "stop"), (False, 12, 12, "stop")],
    ids=["as many as allowed", "fewer than allowed", "no limit", "a server that tells"],
)
def test_the_number_of_tokens_tells_that_an_answer_was_cut(
    told: bool, limit: int | None, spent: int, finish: str, stream: bool
) -> None:
    """llama.cpp says `completed` of an answer that it cut at its limit."""
    response = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [{"id": "msg_0", "type": "message", "content": [{"type": "output_text", "text": "Once upon"}]}],
        "usage": {"input_tokens": 36, "output_tokens": spent, "total_tokens": 36 + spent},
    }
    body = json.dumps({"type": "response.completed", "response": response} if stream else response)
    context = DecodeContext(profile=Profile(cut_by_usage=told), max_output=limit)
    decoder = DIALECT.decoder(context, stream=stream)
    last = (decoder.feed(f"data: {body}\n\n".encode() if stream else body.encode()) + decoder.close())[-1]
    assert isinstance(last, Done)
    assert last.finish.kind == finish


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("limit", "spent", "arguments", "ends"),
    [
        (12, 12, '{"city": "Lis', "length"),
        (12, 12, '{"city": "Lisbon"}', "length"),
        (12, 11, '{"city": "Lis', "malformed_call"),
        (12, 11, '{"city": "Lisbon",}', "tool"),
        (None, 12, '{"city": "Lis', "malformed_call"),
    ],
    ids=["cut", "whole at the limit", "broken, not cut", "mended", "an unknown limit"],
)
def test_a_call_that_was_cut_under_a_completed_answer(
    limit: int | None, spent: int, arguments: str, ends: str, stream: bool
) -> None:
    """llama.cpp calls the item done and the answer `completed`; the number of tokens, which comes last, tells the truth."""
    item = {"id": "fc_0", "type": "function_call", "call_id": "c1", "name": "weather", "arguments": arguments}
    item["status"] = "completed"
    usage = {"input_tokens": 36, "output_tokens": spent, "total_tokens": 36 + spent}
    response = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [item], "usage": usage}
    added = {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}}
    delta = {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_0", "delta": arguments}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    records = [added, delta, done, {"type": "response.completed", "response": response}]
    body = "".join(f"data: {json.dumps(record)}\n\n" for record in records) if stream else json.dumps(response)
    context = DecodeContext(profile=Profile(cut_by_usage=True), max_output=limit, mend=ArgumentMender)
    decoder = DIALECT.decoder(context, stream=stream)
    events = decoder.feed(body.encode()) + decoder.close()
    last = events[-1]
    assert (last.finish.kind if isinstance(last, Done) else last.code if isinstance(last, Error) else "") == ends
    complete = [event.arguments for event in events if isinstance(event, ToolCallComplete)]
    assert complete == (['{"city": "Lisbon"}'] if "Lisbon" in arguments else [])

"""Answers and errors in the Messages dialect: what the generic case runner does not ask.

The judge is the official SDK, fed with our bytes through its own transport. Each fact about this SDK that
docs/reference/wire-facts.md#anthropic-answers relies on is one test here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import anthropic
import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.dialects import get_dialect
from athena.dialects.anthropic_messages.encode_answer import _WRITE
from athena.dialects.base import DecodeContext, EncodeContext, ModelEntry
from athena.errors import ErrorKind
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
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
from athena.model.limits import Limits
from athena.model.parts import Audio, Base64, Citation, Foreign, Image, Opaque
from athena.model.profile import Profile
from athena.model.request import Request
from athena.wire.sse import SseDecoder

DIALECT = get_dialect("anthropic_messages")
REQUEST = Request(dialect="anthropic_messages", model="my-model", stream=True)
ENVELOPE = Opaque(family="openai", kind="encrypted", payload="gw1.abc.def")


def context(**fields: Any) -> EncodeContext:
    return EncodeContext(request=fields.pop("request", REQUEST), seed=fields.pop("seed", "req_1"), **fields)


def write(events: list[Event], *, stream: bool = True, **fields: Any) -> bytes:
    """The bytes of an answer, fed in one batch; one event at a time must give the same."""
    whole = DIALECT.encoder(context(**fields), stream=stream).feed(events)
    encoder = DIALECT.encoder(context(**fields), stream=stream)
    assert b"".join(encoder.feed([event]) for event in events) == whole
    return whole


def test_every_kind_of_event_is_written_or_passed_over() -> None:
    assert _WRITE.keys() == set(get_args(Event))


def records(data: bytes) -> list[dict[str, Any]]:
    """The payloads of a stream, each under the event name its type says."""
    found = []
    for name, payload in SseDecoder().feed(data):
        value = json.loads(payload)
        assert name == value["type"], "an event without its own name is skipped by the SDKs"
        found.append(value)
    return found


def types(data: bytes) -> list[str]:
    return [record["type"] for record in records(data)]


def client_for(body: bytes, status: int = 200, kind: str = "text/event-stream") -> anthropic.Anthropic:
    """The real SDK on a transport that answers every request with these bytes."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers={"content-type": kind}, content=body)

    http = anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="test", base_url="http://127.0.0.1", max_retries=0, http_client=http)


def ask(body: bytes) -> Any:
    """What the SDK's accumulator makes of a stream."""
    with client_for(body).messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]) as stream:
        return stream.get_final_message()


def ask_whole(body: bytes) -> Any:
    client = client_for(body, kind="application/json")
    return client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])


def call(number: int, *pieces: str, name: str = "", call_id: str = "") -> list[Event]:
    call_id, name = call_id or f"call_{number}", name or f"tool_{number}"
    deltas: list[Event] = [ToolCallDelta(number, piece) for piece in pieces]
    return [ToolCallStart(number, call_id, name), *deltas, ToolCallComplete(number, call_id, name, "".join(pieces))]


ANSWER: list[Event] = [
    Start("chatcmpl-1", "gpt", usage=None),
    ThinkingDelta("Let me "),
    ThinkingDelta("see."),
    ThinkingDelta(signature=ENVELOPE),
    TextDelta("It is "),
    TextDelta('"fine" \U0001f600\u2028'),
    *call(0, '{"p":', "1.0}"),
    *call(1, "{}"),
    Done(Finish("tool", "tool_calls"), usage=Usage(input_total=30, output_total=7, cache_read=10, cache_write=5, reasoning=3)),
]


# -- the SDK as the judge of the encoder ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_the_sdk_reads_a_whole_answer(stream: bool) -> None:
    body = write(ANSWER, stream=stream)
    message = ask(body) if stream else ask_whole(body)
    thinking, text, first, second = message.content
    assert (thinking.type, thinking.thinking, thinking.signature) == ("thinking", "Let me see.", ENVELOPE.payload)
    assert (text.type, text.text) == ("text", 'It is "fine" \U0001f600\u2028')
    assert (first.type, first.id, first.name, first.input) == ("tool_use", "call_0", "tool_0", {"p": 1.0})
    assert (second.id, second.input) == ("call_1", {})
    assert message.stop_reason == "tool_use"
    assert message.stop_sequence is None
    assert message.model == "my-model"
    assert message.id.startswith("msg_")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (15, 10, 5)
    assert (usage.output_tokens, usage.output_tokens_details.thinking_tokens) == (7, 3)


def test_whole_arguments_are_the_models_own_text() -> None:
    events: list[Event] = [*call(0, '{"b": 1.0, "a": 1e5, "a": 12345678901234567890123}'), Done(Finish("tool"))]
    assert b'"input":{"b": 1.0, "a": 1e5, "a": 12345678901234567890123}' in write(events, stream=False)


def test_order_of_a_stream() -> None:
    assert types(write(ANSWER)) == [
        "message_start", "ping",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip


def test_block_starts_have_the_fields_clients_need() -> None:
    starts = [record["content_block"] for record in records(write(ANSWER)) if record["type"] == "content_block_start"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "call_0", "name": "tool_0", "input": {}},
        {"type": "tool_use", "id": "call_1", "name": "tool_1", "input": {}},
    ]


def test_equal_seeds_give_equal_bytes() -> None:
    assert write(ANSWER) == write(ANSWER)
    assert write(ANSWER) != write(ANSWER, seed="req_2")


def test_usage_of_message_start_is_the_estimate_until_more_is_known() -> None:
    start = records(write([TextDelta("x"), Done(Finish())], input_tokens=321))[0]["message"]["usage"]
    assert start["input_tokens"] == 321
    assert start["output_tokens"] == 0
    known = Usage(input_total=12, cache_read=2, output_total=1)
    start = records(write([Start(usage=known), Done(Finish())], input_tokens=321))[0]["message"]["usage"]
    assert (start["input_tokens"], start["cache_read_input_tokens"]) == (10, 2)


def test_missing_usage_is_never_left_out() -> None:
    message = ask(write([TextDelta("x"), Done(Finish())], input_tokens=5))
    assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 0)


def test_interleaved_calls_and_text_come_one_after_another() -> None:
    """4.10, first example: the first call runs live, what another says meanwhile waits."""
    encoder = DIALECT.encoder(context(), stream=True)
    first = encoder.feed([TextDelta("Hi"), ToolCallStart(0, "x", "a"), ToolCallDelta(0, '{"p"')])
    assert b'"partial_json":"{\\"p\\""' in first
    waiting = encoder.feed([ToolCallStart(1, "y", "b"), ToolCallDelta(1, "{"), TextDelta("late")])
    assert waiting == b""
    then = encoder.feed([ToolCallDelta(0, ":1}"), ToolCallComplete(0, "x", "a", '{"p":1}'), ToolCallDelta(1, "}")])
    rest = encoder.feed([ToolCallComplete(1, "y", "b", "{}"), Done(Finish("tool"), usage=Usage(1, 2))])
    message = ask(first + waiting + then + rest)
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use", "text"]
    assert [(block.id, block.input) for block in message.content[1:3]] == [("x", {"p": 1}), ("y", {})]
    assert message.content[3].text == "late"


Piece = tuple[str, int, str]


@st.composite
def _interleavings(draw: st.DrawFn) -> list[Event]:
    """Up to four calls, text and thinking, in any order that the grammar of events allows."""
    count = draw(st.integers(1, 4))
    texts = [json.dumps({"k": draw(st.text(max_size=6)), "n": number}) for number in range(count)]
    queues: list[list[Event]] = []
    for number, text in enumerate(texts):
        cut = draw(st.integers(0, len(text)))
        queues.append(call(number, *(piece for piece in (text[:cut], text[cut:]) if piece)))
    queues.append([TextDelta(piece) for piece in draw(st.lists(st.text(min_size=1, max_size=4), max_size=3))])
    queues.append([ThinkingDelta(piece) for piece in draw(st.lists(st.text(min_size=1, max_size=4), max_size=2))])
    events: list[Event] = [Start()]
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        events.append(queue.pop(0))
    return [*events, Done(Finish("tool"), usage=Usage(1, 1))]


@given(_interleavings())
def test_any_interleaving_becomes_blocks_in_a_row(events: list[Event]) -> None:
    opened: int | None = None
    expected = 0
    for record in records(write(events)):
        if record["type"] == "content_block_start":
            assert opened is None
            assert record["index"] == expected
            opened, expected = record["index"], expected + 1
        elif record["type"] == "content_block_delta":
            assert record["index"] == opened
        elif record["type"] == "content_block_stop":
            assert record["index"] == opened
            opened = None
    decoder = DIALECT.decoder(DecodeContext(), stream=True)
    again = decoder.feed(write(events)) + decoder.close()
    wanted = {event.id: event.arguments for event in events if isinstance(event, ToolCallComplete)}
    assert {event.id: event.arguments for event in again if isinstance(event, ToolCallComplete)} == wanted
    for kind in (TextDelta, ThinkingDelta):
        assert "".join(event.text for event in again if isinstance(event, kind)) == "".join(
            event.text for event in events if isinstance(event, kind)
        )


# -- facts 4.4 marks as reproduced: each shows the SDK's behaviour and that our bytes never provoke it -------------------------


def sse(*payloads: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (p["type"].encode(), json.dumps(p).encode()) for p in payloads)


MESSAGE: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
           "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
START: dict[str, Any] = {"type": "message_start", "message": MESSAGE}
TOOL: dict[str, Any] = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "tool_use", "id": "t", "name": "a", "input": {}},
}
END: dict[str, Any] = {
    "type": "message_delta",
    "delta": {"stop_reason": "tool_use", "stop_sequence": None},
    "usage": {"output_tokens": 2},
}
STOP = {"type": "message_stop"}


def json_delta(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}


def test_fact_events_without_names_are_skipped() -> None:
    nameless = b"\n".join(line for line in write(ANSWER).split(b"\n") if not line.startswith(b"event:"))
    with client_for(nameless).messages.stream(model="m", max_tokens=9, messages=[]) as stream:
        assert list(stream) == []


def test_fact_message_start_must_come_first() -> None:
    """Older SDKs raise; SDK 2.8 silently drops what comes before it, which is worse."""
    assert ask(sse(TOOL, START, END, STOP)).content == []
    assert types(write(ANSWER))[0] == "message_start"
    assert types(write([Done(Finish())]))[0] == "message_start"


def test_fact_usage_of_message_start_is_needed() -> None:
    without = {**START, "message": {key: value for key, value in MESSAGE.items() if key != "usage"}}
    with pytest.raises(Exception):  # noqa: B017, PT011 - an AttributeError inside the SDK
        ask(sse(without, END, STOP))


def test_fact_a_gap_in_the_indexes_breaks_the_accumulator() -> None:
    gap = {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "x"}}
    with pytest.raises(IndexError):
        ask(sse(START, {**TOOL, "index": 1}, gap))


def test_fact_invalid_arguments_break_the_accumulator() -> None:
    with pytest.raises(ValueError, match="tool parameter"):
        ask(sse(START, TOOL, json_delta('{"a": nope}'), END, STOP))


def test_fact_cut_arguments_pass_unnoticed_so_we_never_close_them() -> None:
    closed = {"type": "content_block_stop", "index": 0}
    assert ask(sse(START, TOOL, json_delta('{"path": "/", "te'), closed, END, STOP)).content[0].input == {"path": "/"}
    events: list[Event] = [
        ToolCallStart(0, "t", "a"),
        ToolCallDelta(0, '{"path": "/", "te'),
        Error("cut", code="truncated_call", fatal=False, call=0),
        TextDelta("more"),
        Done(Finish("length", "length"), usage=Usage(1, 2)),
    ]
    body = write(events)
    stopped = [record["index"] for record in records(body) if record["type"] == "content_block_stop"]
    assert stopped == [1]
    assert ask(body).stop_reason == "max_tokens"


def test_fact_a_second_message_delta_erases_the_first() -> None:
    null = {**END, "delta": {"stop_reason": None, "stop_sequence": None}}
    assert ask(sse(START, END, null, STOP)).stop_reason is None
    assert types(write(ANSWER)).count("message_delta") == 1


def test_fact_a_second_signature_replaces_the_first() -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}
    first, second = (
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": value}} for value in "ab"
    )
    assert ask(sse(START, block, first, second, END, STOP)).content[0].signature == "b"
    deltas = [record["delta"]["type"] for record in records(write(ANSWER)) if record["type"] == "content_block_delta"]
    assert deltas.count("signature_delta") == 1


def test_fact_message_delta_needs_usage() -> None:
    with pytest.raises(AttributeError):
        ask(sse(START, {key: value for key, value in END.items() if key != "usage"}, STOP))


def test_fact_ping_is_skipped_anywhere() -> None:
    frames = [frame + b"\n\n" for frame in write(ANSWER).split(b"\n\n") if frame]
    noisy = DIALECT.keep_alive + b"".join(frame + DIALECT.keep_alive for frame in frames)
    assert ask(noisy).content == ask(write(ANSWER)).content


def test_keep_alive_never_waits_behind_an_open_call() -> None:
    encoder = DIALECT.encoder(context(), stream=True)
    encoder.feed([ToolCallStart(0, "t", "a"), ToolCallDelta(0, "{")])
    assert encoder.feed([KeepAlive()]) == DIALECT.keep_alive


# -- thinking, citations, foreign blocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_state_without_text_travels_in_a_redacted_block(stream: bool) -> None:
    events: list[Event] = [
        ThinkingDelta(signature=Opaque(family="anthropic", kind="redacted", payload="data")),
        ThinkingDelta(signature=ENVELOPE),
        ThinkingDelta(signature=Opaque(family="anthropic", kind="signature", payload="sig")),
        TextDelta("x"),
        Done(Finish()),
    ]
    body = write(events, stream=stream)
    message = ask(body) if stream else ask_whole(body)
    assert [block.type for block in message.content] == ["redacted_thinking", "redacted_thinking", "thinking", "text"]
    assert [block.data for block in message.content[:2]] == ["data", ENVELOPE.payload]
    assert (message.content[2].thinking, message.content[2].signature) == ("", "sig")


def test_a_redacted_block_ends_the_thinking_before_it() -> None:
    state = Opaque(family="anthropic", kind="redacted", payload="data")
    message = ask(write([ThinkingDelta("a"), ThinkingDelta(signature=state), ThinkingDelta("b"), Done(Finish())]))
    assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "thinking"]


def test_thinking_nobody_signed_has_no_signature_delta() -> None:
    body = write([ThinkingDelta("a"), TextDelta("b"), Done(Finish())])
    assert b"signature_delta" not in body
    assert ask(body).content[0].signature == ""


def test_citations_of_other_families_keep_address_and_title() -> None:
    citation = Citation(url="https://e.org", title="E", quote="q", raw={"type": "url_citation"})
    body = write([TextDelta("x"), WholePart(citation), WholePart(Citation(kind="file")), Done(Finish())])
    found = ask(body).content[0].citations
    assert [(one.type, one.url, one.title, one.cited_text) for one in found] == [
        ("web_search_result_location", "https://e.org", "E", "q")
    ]


def test_our_own_citations_do_not_go_back_upstream() -> None:
    """The provider would refuse an index it did not make."""
    cited = {"type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "", "encrypted_index": ""}
    blocks = [{"type": "text", "text": "x", "citations": [cited]}]
    body = {
        "model": "m",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": blocks}],
    }
    request = DIALECT.decode_request(body)
    assert request.turns[1].raw is None
    assert request.turns[1].parts[0].raw is None


def test_same_dialect_keeps_ids_model_blocks_and_extras() -> None:
    raw = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    location = {"type": "char_location", "cited_text": "x", "document_index": 0, "start_char_index": 0, "end_char_index": 1}
    events: list[Event] = [
        Start("msg_up", "claude-up", usage=Usage(9, 1, raw={"input_tokens": 9, "output_tokens": 1, "speed": "fast"}),
              extras={"diagnostics": {"a": 1}}),
        WholePart(Foreign(kind="server_tool_use", dialect="anthropic_messages",
                          raw={"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}})),
        WholePart(Foreign(kind="web_search_tool_result", dialect="anthropic_messages", raw=raw)),
        TextDelta("a"),
        WholePart(Citation(kind="char_location", raw=location)),
        Extra({"text_block_end": True}, choice=0, delta=True),
        TextDelta("b"),
        Extra({"unknown_event": {"type": "vendor_note", "x": 1}}, choice=0, delta=True),
        Extra({"container": {"id": "c"}, "context_management": {"applied_edits": []}}),
        Done(Finish("pause", "pause_turn"), usage=Usage(9, 5, raw={"input_tokens": 9, "output_tokens": 5, "speed": "fast"})),
    ]  # fmt: skip
    body = write(events, same_dialect=True)
    message = ask(body)
    assert (message.id, message.model, message.stop_reason, message.usage.speed) == (
        "msg_up",
        "claude-up",
        "pause_turn",
        "fast",
    )
    assert [block.type for block in message.content] == ["server_tool_use", "web_search_tool_result", "text", "text"]
    assert message.content[0].input == {"query": "q"}
    assert message.content[2].citations[0].type == "char_location"
    found = records(body)
    assert {"type": "vendor_note", "x": 1} in found
    assert found[0]["message"]["diagnostics"] == {"a": 1}
    last = found[-2]
    assert last["delta"]["container"] == {"id": "c"}
    assert last["context_management"] == {"applied_edits": []}
    whole = json.loads(write(events, stream=False, same_dialect=True))
    assert whole["container"] == {"id": "c"}
    assert [block["type"] for block in whole["content"]] == ["server_tool_use", "web_search_tool_result", "text"]


def test_blocks_of_other_dialects_and_media_are_left_out() -> None:
    events: list[Event] = [
        WholePart(Foreign(kind="web_search_call", dialect="openai_responses", raw={"type": "web_search_call"})),
        WholePart(Image(source=Base64("image/png", "AA=="))),
        WholePart(Audio(transcript="said")),
        Done(Finish()),
    ]
    assert [block.text for block in ask(write(events)).content] == ["said"]
    assert [block.text for block in ask_whole(write(events, stream=False)).content] == ["said"]


def test_members_of_a_toolset_are_named_with_it() -> None:
    start = ToolCallStart(0, "t", "left_click", namespace="computer")
    end = ToolCallComplete(0, "t", "left_click", '{"coordinate":[1,2]}', namespace="computer")
    body = write([start, ToolCallDelta(0, '{"coordinate":[1,2]}'), end, Done(Finish("tool"))])
    assert records(body)[2]["content_block"]["toolset_name"] == "computer"
    decoded = DIALECT.decoder(DecodeContext(), stream=True).feed(body)
    assert [event.namespace for event in decoded if isinstance(event, ToolCallStart)] == ["computer"]


def test_a_lone_surrogate_does_not_end_the_stream() -> None:
    body = write([TextDelta("a\ud83d"), *call(0, '{"x":"\ud83d"}'), Done(Finish("tool"))])
    assert '"a\ufffd"'.encode() in body, "as an escape, half of a character is refused by strict parsers"
    assert types(body)[-1] == "message_stop"
    assert '"text":"a\ufffd"'.encode() in write([TextDelta("a\ud83d"), Done(Finish())], stream=False)


# -- endings ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish("stop"), "end_turn"),
        (Finish("stop_sequence", stop_sequence="END"), "stop_sequence"),
        (Finish("stop_sequence"), "end_turn"),
        (Finish("tool"), "tool_use"),
        (Finish("length"), "max_tokens"),
        (Finish("context"), "model_context_window_exceeded"),
        (Finish("refusal"), "refusal"),
        (Finish("filter"), "refusal"),
        (Finish("pause"), "pause_turn"),
        (Finish("continuation"), "max_tokens"),
        (Finish("malformed"), "end_turn"),
    ],
)
def test_finish_reasons(finish: Finish, reason: str) -> None:
    message = ask(write([TextDelta("x"), Done(finish)]))
    assert message.stop_reason == reason
    assert message.stop_sequence == finish.stop_sequence
    assert ask_whole(write([TextDelta("x"), Done(finish)], stream=False)).stop_reason == reason
    assert (message.stop_details is not None) == (reason == "refusal")


def test_a_reason_only_this_dialect_knows_survives_in_it() -> None:
    end = {**END, "delta": {"stop_reason": "compaction", "stop_sequence": None}}
    decoder = DIALECT.decoder(DecodeContext(keep_extras=True), stream=True)
    done = (decoder.feed(sse(START, end, STOP)))[-1]
    assert isinstance(done, Done)
    assert done.finish.kind == "pause"
    assert ask(write([done], same_dialect=True)).stop_reason == "compaction"
    assert ask(write([done])).stop_reason == "pause_turn"


def test_refusal_text_is_text() -> None:
    message = ask(write([TextDelta("No.", refusal=True), Done(Finish("refusal"))]))
    assert message.content[0].text == "No."
    assert message.stop_details.type == "refusal"


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_without_content_is_valid(stream: bool) -> None:
    body = write([Done(Finish())], stream=stream)
    assert (ask(body) if stream else ask_whole(body)).content == []


def test_nothing_follows_the_end() -> None:
    for end in (Done(Finish()), Error("broken")):
        encoder = DIALECT.encoder(context(), stream=True)
        encoder.feed([TextDelta("x"), end, TextDelta("y")])
        assert encoder.feed([TextDelta("z"), Done(Finish())]) == b""


def test_repaired_arguments_behind_streamed_ones_are_an_error() -> None:
    start, delta = ToolCallStart(0, "t", "a"), ToolCallDelta(0, "{'p': 1}")
    body = write([start, delta, ToolCallComplete(0, "t", "a", '{"p": 1}', repaired=True), Done(Finish("tool"))])
    assert types(body)[-1] == "error"
    assert b"content_block_stop" not in body
    held = write([start, ToolCallComplete(0, "t", "a", '{"p": 1}', repaired=True), Done(Finish("tool"))])
    assert ask(held).content[0].input == {"p": 1}


# -- errors -----------------------------------------------------------------------------------------------------------------

ERRORS: list[tuple[ErrorKind, int, str, type[Exception]]] = [
    ("invalid", 400, "invalid_request_error", anthropic.BadRequestError),
    ("context_length", 400, "invalid_request_error", anthropic.BadRequestError),
    ("content_policy", 400, "invalid_request_error", anthropic.BadRequestError),
    ("auth", 401, "authentication_error", anthropic.AuthenticationError),
    ("billing", 402, "billing_error", anthropic.APIStatusError),
    ("permission", 403, "permission_error", anthropic.PermissionDeniedError),
    ("not_found", 404, "not_found_error", anthropic.NotFoundError),
    ("conflict", 409, "conflict_error", anthropic.ConflictError),
    ("too_large", 413, "request_too_large", anthropic.APIStatusError),
    ("rate_limit", 429, "rate_limit_error", anthropic.RateLimitError),
    ("overloaded", 529, "overloaded_error", anthropic.APIStatusError),
    ("timeout", 504, "timeout_error", anthropic.APIStatusError),
    ("upstream", 502, "api_error", anthropic.InternalServerError),
    ("server", 500, "api_error", anthropic.InternalServerError),
]


@pytest.mark.parametrize(("kind", "status", "name", "raised"), ERRORS)
def test_errors_as_http_answers(kind: ErrorKind, status: int, name: str, raised: type[Exception]) -> None:
    answer = DIALECT.encode_error(Error("it broke", kind=kind, code="our_code", retry_after=1.2), "req_7")
    assert answer.status == status
    body = json.loads(answer.body)
    assert body["type"] == "error"
    assert body["request_id"] == "req_7"
    assert body["error"]["type"] == name
    assert body["error"]["code"] == "our_code"
    assert answer.headers == {"retry-after": "2", "retry-after-ms": "1200"}
    with pytest.raises(raised):
        client_for(answer.body, status, "application/json").messages.create(model="m", max_tokens=1, messages=[])
    back = DIALECT.decode_error(status, answer.headers, answer.body)
    assert back.kind == {"content_policy": "invalid", "server": "upstream"}.get(kind, kind)
    assert back.retry_after == pytest.approx(1.2)


def test_overflow_is_worded_so_that_agents_compact() -> None:
    wanted = json.loads(DIALECT.encode_error(Error("input too big", kind="context_length")).body)["error"]["message"]
    assert wanted == "prompt is too long: input too big"
    other = DIALECT.encode_error(Error("Your input exceeds the context window of this model.", kind="context_length")).body
    assert json.loads(other)["error"]["message"].startswith("prompt is too long: Your input")
    for message in ("prompt is too long: 9 tokens > 8 maximum", "This model's maximum context length is 8 tokens"):
        assert json.loads(DIALECT.encode_error(Error(message, kind="context_length")).body)["error"]["message"] == message


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}',
            "context_length",
        ),
        (400, b'{"error":{"message":"bad","code":"context_length_exceeded"}}', "context_length"),
        (400, b'{"error":{"message":"request (9 tokens) exceeds the available context size (8 tokens)"}}', "context_length"),
        (400, b'{"message":"Input is too long for requested model."}', "context_length"),
        (400, b'{"error":"This model\'s maximum prompt length is 8 but the request contains 9 tokens."}', "context_length"),
        (400, b'{"error":{"message":"Please reduce the length of the messages or completion."}}', "context_length"),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "overloaded"),
        (500, b"<html>nginx</html>", "upstream"),
        (503, b"", "overloaded"),
        (429, b'{"detail":"slow down"}', "rate_limit"),
        (413, b'{"type":"error","error":{"type":"request_too_large","message":"x"}}', "too_large"),
        (422, b'{"detail":[{"msg":"field required"}]}', "invalid"),
    ],
)
def test_errors_of_upstreams(status: int, body: bytes, kind: str) -> None:
    error = DIALECT.decode_error(status, {}, body)
    assert (error.kind, error.status, error.fatal) == (kind, status, True)
    assert error.message


def test_an_error_ends_a_stream_without_message_delta() -> None:
    body = write([TextDelta("x"), ToolCallStart(0, "t", "a"), ToolCallDelta(0, '{"'), Error("boom", kind="overloaded")])
    assert types(body)[-1] == "error"
    assert not {"message_delta", "message_stop"} & set(types(body))
    assert records(body)[-1]["error"]["type"] == "overloaded_error"
    with pytest.raises(anthropic.APIStatusError, match="boom"):
        ask(body)


def test_stop_behind_an_error_only_where_configured() -> None:
    body = write([TextDelta("x"), Error("boom")], stream_error_stop=True)
    assert types(body)[-2:] == ["error", "message_stop"]
    assert records(body)[-1] == {"type": "message_stop"}


def test_an_error_as_the_first_event_needs_no_message() -> None:
    assert types(write([Error("boom")])) == ["error"]


def test_a_whole_answer_that_failed_is_an_error_body() -> None:
    body = json.loads(write([TextDelta("x"), Error("boom", kind="timeout")], stream=False))
    assert (body["type"], body["error"]["type"]) == ("error", "timeout_error")


# -- decoding: what one case file cannot say ---------------------------------------------------------------------------------


def read(data: bytes, *, stream: bool = True, **fields: Any) -> list[Event]:
    decoder = DIALECT.decoder(DecodeContext(**fields), stream=stream)
    return decoder.feed(data) + decoder.close()


def test_reasoning_state_names_the_family_of_the_upstream() -> None:
    body = write([ThinkingDelta("a"), ThinkingDelta(signature=ENVELOPE), Done(Finish())])

    def families(profile: Profile) -> list[str]:
        events = read(body, profile=profile)
        return [event.signature.family for event in events if isinstance(event, ThinkingDelta) and event.signature]

    assert families(Profile(name="look_alike")) == ["look_alike"]
    assert families(Profile(family="anthropic")) == ["anthropic"]
    assert families(Profile(family="mistral")) == ["mistral"]


def test_refusal_details_and_raw_reason_survive() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": None}
    end = {**END, "delta": {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}}
    done = read(sse(START, end, STOP))[-1]
    assert isinstance(done, Done)
    assert done.finish == Finish("refusal", "refusal", None, details)


def test_extras_only_for_clients_of_the_same_dialect() -> None:
    end = {**END, "delta": {"stop_reason": "end_turn", "container": {"id": "c"}}, "context_management": {}}
    body = sse({**START, "message": {**MESSAGE, "diagnostics": {}}}, {"type": "novelty"}, end, STOP)
    assert not [event for event in read(body) if isinstance(event, Extra)]
    kept = [event.fields for event in read(body, keep_extras=True) if isinstance(event, Extra)]
    assert kept == [{"unknown_event": {"type": "novelty"}}, {"context_management": {}, "container": {"id": "c"}}]


def test_a_late_or_second_message_start_is_no_second_start() -> None:
    events = read(sse(START, START, TOOL, json_delta("{}"), START, END, STOP))
    assert sum(isinstance(event, Start) for event in events) == 1


def test_an_interrupted_call_of_a_refused_answer_is_cut_not_fatal() -> None:
    end = {**END, "delta": {"stop_reason": "refusal", "stop_sequence": None}}
    *_, error, done = read(sse(START, TOOL, json_delta('{"p'), end, STOP))
    assert isinstance(error, Error)
    assert (error.code, error.fatal) == ("truncated_call", False)
    assert isinstance(done, Done)


@pytest.mark.parametrize(
    "limits", [Limits(argument_chars=10), Limits(calls=0), Limits(event_bytes=100)], ids=["arguments", "calls", "event"]
)
def test_limits_are_typed_errors(limits: Limits) -> None:
    events = read(sse(START, TOOL, json_delta("x" * 11), END, STOP), limits=limits)
    assert isinstance(events[-1], Error)
    assert events[-1].kind == "upstream"


def test_records_of_the_wrong_shape_end_the_answer() -> None:
    events = read(sse(START, {"type": "content_block_delta", "index": "zero", "delta": {}}))
    assert isinstance(events[-1], Error)
    assert events[-1].code == "upstream_protocol"


def test_crlf_and_comments_are_no_matter() -> None:
    body = b": hello\r\n\r\n" + write(ANSWER).replace(b"\n", b"\r\n")
    plain = [event for event in read(write(ANSWER)) if not isinstance(event, KeepAlive)]
    assert [event for event in read(body) if not isinstance(event, KeepAlive)] == plain


# -- models and counts --------------------------------------------------------------------------------------------------------


def test_both_sdks_read_the_model_list() -> None:
    import openai

    listed = DIALECT.encode_models([ModelEntry("kimi-k2", created=1700000000, max_input=1000), ModelEntry("x")])
    body = json.dumps(listed).encode()
    page = client_for(body, kind="application/json").models.list()
    assert [(model.id, model.type, model.display_name) for model in page.data] == [
        ("kimi-k2", "model", "kimi-k2"),
        ("x", "model", "x"),
    ]
    assert page.data[0].created_at.year == 2023
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("kimi-k2", "x", False)
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=listed))
    other = openai.OpenAI(
        api_key="test", base_url="http://127.0.0.1/v1", http_client=openai.DefaultHttpxClient(transport=transport)
    )
    assert [model.id for model in other.models.list()] == ["kimi-k2", "x"]
    assert DIALECT.encode_models([])["first_id"] is None


def test_the_sdk_reads_a_token_count() -> None:
    client = client_for(json.dumps(DIALECT.encode_count(42)).encode(), kind="application/json")
    assert client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "Hi"}]).input_tokens == 42


def test_a_count_needs_no_max_tokens() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "a"}]}
    request = DIALECT.decode_count_request(body)
    assert request.max_output is None
    assert [tool.name for tool in request.tools] == ["a"]


# -- the hot path ------------------------------------------------------------


def test_work_per_chunk_does_not_grow_with_the_answer() -> None:
    """A text chunk costs the same bytes late as early: nothing of the past is written again."""
    encoder = DIALECT.encoder(context(), stream=True)
    encoder.feed([Start(), TextDelta("x")])
    sizes = {len(encoder.feed([TextDelta("word ")])) for _ in range(2000)}
    assert len(sizes) == 1


def test_bodies_are_compact_json() -> None:
    check: Callable[[bytes], Any] = msgspec.json.decode
    assert b'": ' not in write(ANSWER, stream=False).replace(b'"p":1.0', b"")
    assert check(write(ANSWER, stream=False))["type"] == "message"

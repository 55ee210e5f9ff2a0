"""Chat Completions answers beyond the generic runners: what the official SDK's accumulator demands, decoding, errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import openai
import pytest

from athena.dialects.base import DecodeContext
from athena.dialects.openai_chat import DIALECT
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
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
    Audio,
    Base64,
    Citation,
    Image,
    Opaque,
)
from athena.model.profile import Profile
from support.chat_values import (
    REDACTED,
    SIGNED,
    THOUGHT,
    accumulate,
    call_events,
    client_request,
    encode,
    sdk,
    whole,
)
from support.grammar import check_grammar

# -- helpers ---------------------------------------------------------------------------------------------------------------


def chunks(written: bytes) -> list[dict[str, Any]]:
    records = [record.removeprefix(b"data: ") for record in written.split(b"\n\n") if record]
    assert records[-1] == b"[DONE]"
    return [json.loads(record) for record in records[:-1]]


def deltas(written: bytes, choice: int = 0) -> list[dict[str, Any]]:
    found = [entry for chunk in chunks(written) for entry in chunk.get("choices", ()) if entry["index"] == choice]
    return [entry["delta"] for entry in found]


def decode(body: bytes | str, *, stream: bool = True, **context: Any) -> list[Event]:
    profile = msgspec.convert(context.pop("profile", {}), Profile)
    decoder = DIALECT.decoder(DecodeContext(profile=profile, seed="t", **context), stream=stream)
    data = body.encode() if isinstance(body, str) else body
    events = decoder.feed(data) + decoder.close()
    check_grammar(events)
    return events


def records(*values: dict[str, Any] | str, done: bool = True) -> str:
    lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return "".join(f"data: {line}\n\n" for line in [*lines, *(["[DONE]"] if done else [])])


def record(delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **extra: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "up", "choices": [choice], **extra}


# -- streamed answers: shape -----------------------------------------------------------------------------------------------


def test_first_chunk_names_the_role_once_and_usage_comes_last() -> None:
    events: list[Event] = [Start(), TextDelta("Hi"), TextDelta(" you"), Done(Finish(), usage=Usage(10, 5))]
    found = chunks(encode(events))
    assert [chunk["object"] for chunk in found] == ["chat.completion.chunk"] * len(found)
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert sum("role" in entry["delta"] for chunk in found for entry in chunk["choices"]) == 1
    assert [entry["finish_reason"] for chunk in found for entry in chunk["choices"]] == [None, None, None, "stop"]
    assert all(chunk["usage"] is None for chunk in found[:-1])
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("same", [True, False])
def test_usage_chunk_only_when_asked_for(same: bool) -> None:
    events: list[Event] = [TextDelta("Hi"), Done(Finish(), usage=Usage(10, 5, raw={"prompt_tokens": 10}))]
    written = encode(events, request=client_request(include_usage=None), same_dialect=same)
    assert b"usage" not in written


def test_calls_have_id_type_and_name_once_and_dense_indexes() -> None:
    events = [
        *call_events(0, "x", "a", '{"p"', ":1}"),
        *call_events(1, "y", "b", "{}", choice=1),
        *call_events(2, "z", "c", "{}"),
        Done(Finish("tool"), 0, last=False),
        Done(Finish("tool"), 1),
    ]
    first = deltas(encode(events))
    assert first[0] == {"role": "assistant", "content": None}
    assert first[1:] == [
        {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "a", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"p"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        {"tool_calls": [{"index": 1, "id": "z", "type": "function", "function": {"name": "c", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert deltas(encode(events), 1)[1]["tool_calls"][0]["index"] == 0


def test_interleaved_calls_stay_apart_in_the_sdk() -> None:
    events: list[Event] = [
        ToolCallStart(0, "x", "a"), ToolCallStart(1, "y", "b"), ToolCallDelta(0, '{"p"'), ToolCallDelta(1, '{"q"'),
        ToolCallDelta(0, ":1}"), ToolCallComplete(0, "x", "a", '{"p":1}'), ToolCallDelta(1, ":2}"),
        ToolCallComplete(1, "y", "b", '{"q":2}'), Done(Finish("tool")),
    ]  # fmt: skip
    calls = accumulate(encode(events)).choices[0].message.tool_calls
    assert [(call.id, call.type, call.function.name, call.function.arguments) for call in calls] == [
        ("x", "function", "a", '{"p":1}'),
        ("y", "function", "b", '{"q":2}'),
    ]


def test_a_call_that_comes_whole_is_still_written_in_two_deltas() -> None:
    events: list[Event] = [ToolCallComplete(0, "x", "a", "{}"), Done(Finish("tool"))]
    assert deltas(encode(events))[1:3] == [
        {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "a", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    ]


def test_custom_calls_keep_their_free_text() -> None:
    events = [*call_events(0, "x", "patch", "*** Begin\n", "*** End", kind="custom"), Done(Finish("tool"))]
    again = decode(encode(events))
    assert [event.arguments for event in again if isinstance(event, ToolCallComplete)] == ["*** Begin\n*** End"]
    assert whole(events)["choices"][0]["message"]["tool_calls"] == [
        {"id": "x", "type": "custom", "custom": {"name": "patch", "input": "*** Begin\n*** End"}}
    ]


def test_thinking_goes_to_the_fields_asked_for() -> None:
    events: list[Event] = [ThinkingDelta("Hm"), ThinkingDelta("."), TextDelta("Hi"), Done(Finish())]
    assert deltas(encode(events))[1] == {"reasoning_content": "Hm"}
    both = encode(events, reasoning_fields=("reasoning", "reasoning_content"))
    assert deltas(both)[1] == {"reasoning": "Hm", "reasoning_content": "Hm"}
    message = accumulate(both).choices[0].message
    assert message.model_extra["reasoning"] == message.model_extra["reasoning_content"] == "Hm."


def test_signatures_ride_in_details_the_sdk_can_accumulate() -> None:
    events: list[Event] = [
        ThinkingDelta("Let me "), ThinkingDelta("see."), ThinkingDelta(signature=SIGNED), ThinkingDelta(signature=REDACTED),
        ThinkingDelta("More"), ThinkingDelta(signature=SIGNED), TextDelta("Hi"), Done(Finish()),
    ]  # fmt: skip
    expected = [
        {"type": "reasoning.text", "text": "Let me see.", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "secret", "format": "anthropic-claude-v1", "index": 1},
        {"type": "reasoning.text", "text": "More", "signature": "sig", "format": "anthropic-claude-v1", "index": 2},
    ]
    assert accumulate(encode(events)).choices[0].message.model_extra["reasoning_details"] == expected
    assert whole(events)["choices"][0]["message"]["reasoning_details"] == expected


def test_details_streamed_in_pieces_hold_each_constant_once() -> None:
    events: list[Event] = [
        ThinkingDelta("Let me "), ThinkingDelta("see."), ThinkingDelta(signature=SIGNED), ThinkingDelta("B"), Done(Finish()),
    ]  # fmt: skip
    written = encode(events, reasoning_fields=("reasoning", "reasoning_details"))
    details = accumulate(written).choices[0].message.model_extra["reasoning_details"]
    assert details == [
        {"type": "reasoning.text", "text": "Let me see.", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.text", "text": "B", "index": 1},
    ]


def test_signature_of_a_call_early_and_late() -> None:
    early = [*call_events(0, "x", "a", "{}", signature=THOUGHT), Done(Finish("tool"))]
    late = [*call_events(0, "x", "a", "{}")[:2], ToolCallComplete(0, "x", "a", "{}", signature=THOUGHT), Done(Finish("tool"))]
    for events in (early, late):
        call = accumulate(encode(events)).choices[0].message.tool_calls[0]
        assert call.model_extra["extra_content"] == {"google": {"thought_signature": "c2ln"}}
        assert call.function.arguments == "{}"
    assert "extra_content" in deltas(encode(early))[1]["tool_calls"][0]


def test_citations_go_out_once_with_their_places() -> None:
    citations = [Citation(url="https://a.example", title="A"), Citation(url="https://b.example", start=0, end=2)]
    events: list[Event] = [TextDelta("Hello"), *(WholePart(citation) for citation in citations), TextDelta("!"), Done(Finish())]
    found = accumulate(encode(events)).choices[0].message.annotations
    assert [(note.url_citation.url, note.url_citation.start_index, note.url_citation.end_index) for note in found] == [
        ("https://a.example", 5, 5),
        ("https://b.example", 0, 2),
    ]
    assert len(whole(events)["choices"][0]["message"]["annotations"]) == 2


def test_images_and_sound() -> None:
    image = Image(source=Base64("image/png", "AAAA"))
    audio = Audio(source=Base64("audio/wav", "BBBB"), transcript="hi", id="audio_1", expires_at=9)
    events: list[Event] = [WholePart(image), WholePart(image), WholePart(audio), Done(Finish())]
    message = accumulate(encode(events)).choices[0].message
    assert [entry["image_url"]["url"] for entry in message.model_extra["images"]] == ["data:image/png;base64,AAAA"] * 2
    assert message.audio.data == "BBBB"
    body = whole(events)["choices"][0]["message"]
    assert body["audio"] == {"id": "audio_1", "data": "BBBB", "transcript": "hi", "expires_at": 9}
    assert len(body["images"]) == 2


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("stop", "stop"), ("stop_sequence", "stop"), ("tool", "tool_calls"), ("length", "length"), ("context", "length"),
        ("filter", "content_filter"), ("pause", "stop"), ("continuation", "length"), ("malformed", "stop"),
        ("refusal", "content_filter"),
    ],
)  # fmt: skip
def test_finish_words(kind: Any, word: str) -> None:
    events: list[Event] = [TextDelta("Hi"), Done(Finish(kind))]
    assert chunks(encode(events))[-1]["choices"][0]["finish_reason"] == word
    assert whole(events)["choices"][0]["finish_reason"] == word


def test_a_refusal_with_words_is_a_stop() -> None:
    events: list[Event] = [TextDelta("No.", refusal=True), Done(Finish("refusal"))]
    completion = accumulate(encode(events))
    assert (completion.choices[0].message.refusal, completion.choices[0].finish_reason) == ("No.", "stop")
    assert whole(events)["choices"][0]["message"] == {"role": "assistant", "content": None, "refusal": "No."}


def test_an_answer_without_content_is_valid() -> None:
    events: list[Event] = [Start(), Done(Finish())]
    assert accumulate(encode(events)).choices[0].message.content == ""
    assert whole(events)["choices"][0]["message"]["content"] == ""


def test_several_choices_each_on_their_own() -> None:
    body = records(
        record({"role": "assistant", "content": "A"}), record({"role": "assistant", "content": "B"}, index=1),
        record({"content": "1"}),
        record({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "a", "arguments": "{}"}}]}, index=1),
        record({}, "stop", 1), record({}, "stop"), {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    )  # fmt: skip
    events = decode(body)
    dones = [event for event in events if isinstance(event, Done)]
    assert [(done.choice, done.finish.kind, done.last) for done in dones] == [(0, "stop", False), (1, "tool", True)]
    completion = accumulate(encode(events))
    assert [choice.message.content for choice in completion.choices] == ["A1", "B"]
    assert [choice.finish_reason for choice in completion.choices] == ["stop", "tool_calls"]
    assert [choice["finish_reason"] for choice in whole(events)["choices"]] == ["stop", "tool_calls"]


def test_text_after_a_call_keeps_its_place_in_streams() -> None:
    body = records(
        record({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "a", "arguments": "{}"}}]}),
        record({"content": "Done."}), record({}, "tool_calls"),
    )  # fmt: skip
    kinds = [type(event) for event in decode(body)]
    assert kinds == [Start, ToolCallStart, ToolCallDelta, ToolCallComplete, TextDelta, Done]


def test_an_error_frame_ends_the_stream() -> None:
    events: list[Event] = [TextDelta("Hel"), Error("boom", kind="overloaded", code="upstream_status")]
    written = encode(events)
    assert written.endswith(b"data: [DONE]\n\n")
    with pytest.raises(openai.APIError, match="boom"):
        accumulate(written)
    assert chunks(written)[-1]["error"] == {
        "message": "boom",
        "type": "server_error",
        "param": None,
        "code": "server_is_overloaded",
    }


def test_a_whole_answer_that_failed_is_an_error_body() -> None:
    body = whole([TextDelta("Hel"), Error("slow down", kind="rate_limit")])
    assert body["error"]["type"] == "rate_limit_error"


def test_text_no_utf8_can_hold_is_still_sent() -> None:
    events: list[Event] = [TextDelta("a\ud83d"), *call_events(0, "x", "a", '{"p":"\ud83d"}'), Done(Finish("tool"))]
    assert accumulate(encode(events)).choices[0].message.content == "a\ufffd"
    assert whole(events)["choices"][0]["message"]["content"] == "a\ufffd"


def test_older_clients_get_function_call() -> None:
    request = client_request(raw={"functions": [{"name": "a"}]})
    events = [*call_events(0, "x", "a", '{"p"', ":1}"), Done(Finish("tool"))]
    choice = accumulate(encode(events, request=request)).choices[0]
    assert (choice.finish_reason, choice.message.tool_calls) == ("function_call", None)
    assert (choice.message.function_call.name, choice.message.function_call.arguments) == ("a", '{"p":1}')
    body = json.loads(encode(events, request=msgspec.structs.replace(request, stream=False)))
    assert body["choices"][0]["message"]["function_call"] == {"name": "a", "arguments": '{"p":1}'}


def test_ids_are_the_same_for_the_same_seed() -> None:
    events: list[Event] = [TextDelta("Hi"), Done(Finish())]
    assert encode(events) == encode(events)
    assert chunks(encode(events))[0]["id"].startswith("chatcmpl-")
    assert chunks(encode(events))[0]["created"] == 7


# -- the same dialect ------------------------------------------------------------------------------------------------------


def test_unknown_fields_survive_in_their_own_dialect() -> None:
    body = records(
        record({"role": "assistant", "content": ""}, system_fingerprint="fp", provider="P"),
        record({"content": "Hi", "executed_tools": [{"index": 0}]}, system_fingerprint="fp", provider="P"),
        {**record({"content": "!"}, system_fingerprint="fp", provider="Q")},
        record({}, "stop", system_fingerprint="fp", provider="P"),
    )  # fmt: skip
    body = body.replace('"content": "!"}', '"content": "!"}, "logprobs": {"content": []}')
    found = chunks(encode(decode(body, keep_extras=True), same_dialect=True))
    assert all(chunk["system_fingerprint"] == "fp" for chunk in found)
    assert [chunk["provider"] for chunk in found] == ["P", "P", "Q", "P"]
    assert found[1]["choices"][0]["delta"] == {"content": "Hi", "executed_tools": [{"index": 0}]}
    assert found[2]["choices"][0]["logprobs"] == {"content": []}
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in found} == {("c1", 5, "up")}


def test_unknown_fields_of_whole_answers_survive() -> None:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hi", "custom": 1},
        "finish_reason": "stop",
        "stop_reason": "END",
        "logprobs": {"content": []},
    }
    body = {"id": "c1", "object": "chat.completion", "created": 5, "model": "up", "choices": [choice], "service_tier": "flex"}
    body["usage"] = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.5}
    again = whole(decode(json.dumps(body), stream=False, keep_extras=True), same_dialect=True)
    assert again["service_tier"] == "flex"
    assert again["usage"] == body["usage"]
    assert again["choices"][0]["message"] == {"role": "assistant", "content": "Hi", "refusal": None, "custom": 1}
    assert (again["choices"][0]["stop_reason"], again["choices"][0]["logprobs"]) == ("END", {"content": []})


def test_fields_of_two_records_without_text_do_not_overwrite_each_other() -> None:
    first, second = record({"audio": {"id": "a", "data": "AA"}}), record({"audio": {"data": "BB"}})
    events = decode(records(first, second, record({}, "stop")), keep_extras=True)
    pieces = [delta["audio"]["data"] for delta in deltas(encode(events, same_dialect=True)) if "audio" in delta]
    assert "".join(pieces) == "AABB"


def test_sound_is_collected_for_other_dialects() -> None:
    first, second = record({"audio": {"id": "a", "data": "AA", "transcript": "h"}}), record({"audio": {"data": "BB"}})
    part = next(event.part for event in decode(records(first, second, record({}, "stop"))) if isinstance(event, WholePart))
    assert isinstance(part, Audio)
    assert (part.id, part.transcript, part.source) == ("a", "h", Base64("audio/wav", "AABB"))


@pytest.mark.parametrize("fields", [("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content")])
def test_reasoning_keeps_the_names_the_upstream_used(fields: tuple[str, ...]) -> None:
    body = records(record(dict.fromkeys(fields, "Hm")), record({"content": "Hi"}), record({}, "stop"))
    events = decode(body, keep_extras=True)
    assert deltas(encode(events, same_dialect=True))[1] == dict.fromkeys(fields, "Hm")
    message = whole(events, same_dialect=True)["choices"][0]["message"]
    assert {key: message[key] for key in fields} == dict.fromkeys(fields, "Hm")
    assert REASONING_KEYS & message.keys() == set(fields)


REASONING_KEYS = {"reasoning", "reasoning_content", "reasoning_details"}


def test_extras_of_another_dialect_are_not_shown() -> None:
    events: list[Event] = [Start(extras={"x": 1}), Extra({"y": 2}), TextDelta("Hi"), Done(Finish())]
    assert b'"x"' not in encode(events)
    assert b'"y"' not in encode(events)


# -- decoding beyond the cases ---------------------------------------------------------------------------------------------


def test_encrypted_state_of_gemini_finds_its_call() -> None:
    detail = {"type": "reasoning.encrypted", "data": "c2ln", "id": "x", "format": "google-gemini-v1", "index": 0}
    call = {"index": 0, "id": "x", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    body = records(record({"reasoning_details": [detail], "tool_calls": [call]}), record({}, "tool_calls"))
    start = next(event for event in decode(body) if isinstance(event, ToolCallStart))
    assert start.signature == Opaque("gemini", "thought_signature", "c2ln", "x", "google-gemini-v1")
    alone = decode(records(record({"reasoning_details": [detail]}), record({"content": "Hi"}), record({}, "stop")))
    assert any(isinstance(event, ThinkingDelta) and event.signature is not None for event in alone)


def test_half_an_emoji_does_not_lose_the_chunk() -> None:
    body = records(record({"content": "a"}), '{"choices":[{"index":0,"delta":{"content":"b\\ud83d c"}}]}', record({}, "stop"))
    assert "".join(event.text for event in decode(body) if isinstance(event, TextDelta)) == "ab\ufffd c"


def test_synthesised_ids_differ_between_answers_and_not_between_reads() -> None:
    def made(answer: str) -> str:
        entry = {"index": 0, "function": {"name": "a", "arguments": "{}"}}
        body = records({**record({"tool_calls": [entry]}), "id": answer}, record({}, "stop"))
        return next(event.id for event in decode(body) if isinstance(event, ToolCallStart))

    assert made("one") == made("one") != made("two")


def test_calls_are_bounded() -> None:
    entries = [{"index": index, "id": f"c{index}", "function": {"name": "a", "arguments": "{}"}} for index in range(1100)]
    last = decode(records(record({"tool_calls": entries}), record({}, "stop")))[-1]
    assert isinstance(last, Error)
    assert last.code == "too_many_calls"


def test_arguments_behind_a_nameless_call_are_bounded() -> None:
    from athena.model.limits import Limits

    nameless = record({"tool_calls": [{"index": 0, "id": "x"}]})
    long = record({"tool_calls": [{"index": 1, "id": "y", "function": {"name": "b", "arguments": "x" * 60}}]})
    last = decode(records(nameless, long, long), limits=Limits(argument_chars=100))[-1]
    assert isinstance(last, Error)
    assert last.code == "arguments_too_large"


# -- errors ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, '{"error":{"message":"too long","code":"context_length_exceeded"}}', "context_length"),
        (400, '{"error":{"message":"maximum context length is 10","type":"invalid_request_error"}}', "context_length"),
        (400, '{"error":{"message":"filtered","code":"content_filter","innererror":{}}}', "content_policy"),
        (400, '{"object":"error","message":"bad","type":"BadRequestError","code":400}', "invalid"),
        (401, '{"error":{"message":"no","code":"invalid_api_key"}}', "auth"),
        (402, '{"error":{"code":402,"message":"pay"}}', "billing"),
        (404, '{"error":{"message":"no model","code":"model_not_found"}}', "not_found"),
        (422, '{"detail":[{"msg":"extra_forbidden"}]}', "invalid"),
        (429, '{"error":{"message":"Please try again in 1.5s"}}', "rate_limit"),
        (500, '{"error":"boom"}', "upstream"),
        (503, "<html></html>", "overloaded"),
        (529, "", "overloaded"),
        (524, "", "timeout"),
    ],
)  # fmt: skip
def test_errors_of_many_servers(status: int, body: str, kind: str) -> None:
    error = DIALECT.decode_error(status, {}, body.encode())
    assert error.kind == kind
    assert error.status == status
    again = DIALECT.encode_error(error)
    assert again.status == status
    assert set(json.loads(again.body)["error"]) == {"message", "type", "param", "code"}
    with pytest.raises(openai.APIStatusError) as caught:
        sdk(again.body, "application/json", again.status).chat.completions.create(model="m", messages=[])
    assert caught.value.status_code == status


def test_retry_after_is_kept() -> None:
    error = DIALECT.decode_error(429, {"retry-after": "7"}, b"{}")
    assert DIALECT.encode_error(error).headers == {"retry-after": "7", "retry-after-ms": "7000"}

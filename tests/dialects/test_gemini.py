"""Gemini answers beyond the generic runners: the vendor's SDK as judge of our bytes, and what upstreams answer."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import msgspec
import pytest
from google.genai import errors as genai_errors
from google.genai import types as genai_types
from hypothesis import given
from hypothesis import strategies as st

from athena.dialects.base import DecodeContext, EncodeContext, EncodeTarget, ModelEntry
from athena.dialects.gemini import DIALECT
from athena.dialects.gemini.encode_answer import DECLINED
from athena.dialects.gemini.partial_arguments import steps_of
from athena.dialects.gemini.signatures import PLACEHOLDER, ThinkingState, digest_of, read_slot
from athena.errors import InvalidRequest, UpstreamProtocol, UpstreamStatus
from athena.model.events import (
    Done,
    Error,
    Event,
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
    Base64,
    Citation,
    Foreign,
    Image,
    Opaque,
    Text,
    Thinking,
    ToolCall,
)
from athena.model.profile import Profile
from athena.opaque import Envelope
from athena.translate import StreamTranslator, translate_response
from support.gemini_values import REQUEST, Stage, decode, encoded
from support.grammar import check_grammar

# -- an answer with everything in it -----------------------------------------------------------------------------------------


ENVELOPE = Envelope(b"key")


def call(number: int, name: str, arguments: str, *, signature: Opaque | None = None) -> list[Event]:
    call_id = f"call_{number}"
    return [
        ToolCallStart(number, call_id, name, signature=signature),
        ToolCallDelta(number, arguments),
        ToolCallComplete(number, call_id, name, arguments, signature=signature),
    ]


def sealed(payload: str, family: str = "anthropic") -> Opaque:
    state = Opaque(family=family, kind="signature", payload=payload)
    return Opaque(family=family, kind="signature", payload=ENVELOPE.seal(state))


ANSWER: list[Event] = [
    Start(id="msg_1", model="claude"),
    ThinkingDelta("Let me "),
    ThinkingDelta("think."),
    TextDelta("I will "),
    TextDelta("look.\u2028\u2029\x85 \U0001f600"),
    *call(0, "get_weather", '{"city": "Par\u2028is",\n "days": 1.0}'),
    *call(1, "list_files", "{}"),
    Done(Finish("tool", "tool_use"), usage=Usage(input_total=30, output_total=12, cache_read=10, reasoning=5)),
]

# -- the SDK reads what we write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
def test_sdk_holds_the_whole_answer(stage: Stage, streamed: bool) -> None:
    stage.will_say(encoded(ANSWER, stream=streamed), kind="text/event-stream" if streamed else "application/json")
    chunks = stage.stream() if streamed else [stage.client.models.generate_content(model="m", contents="Hi")]
    parts = [
        part
        for chunk in chunks
        for candidate in chunk.candidates or ()
        for part in (candidate.content.parts if candidate.content else None) or ()
    ]
    assert "".join(part.text or "" for part in parts if part.thought) == "Let me think."
    assert "".join(part.text or "" for part in parts if not part.thought) == "I will look.\u2028\u2029\x85 \U0001f600"
    calls = [part.function_call for part in parts if part.function_call is not None]
    assert [(each.id, each.name, each.args) for each in calls] == [
        ("call_0", "get_weather", {"city": "Par\u2028is", "days": 1.0}),
        ("call_1", "list_files", {}),
    ]
    last = chunks[-1]
    assert last.candidates is not None
    assert last.candidates[0].finish_reason == genai_types.FinishReason.STOP
    assert last.candidates[0].index == 0
    assert last.model_version == "gemini-x"
    assert last.response_id
    usage = last.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (30, 10)
    assert (usage.candidates_token_count, usage.thoughts_token_count, usage.total_token_count) == (7, 5, 42)


def test_every_line_is_data_or_blank() -> None:
    """What SDKs refuse or drop: comments, event lines, [DONE], `data:` without its space, an unterminated last event."""
    written = encoded(ANSWER)
    assert re.fullmatch(rb'(data: \{"[^\r\n]*\}\r\n\r\n)+', written)
    assert not set("\x85\u2028\u2029") & set(written.decode())


@pytest.mark.parametrize("keep_alive", [DIALECT.keep_alive, DIALECT.keep_alive * 3])
def test_keep_alives_are_invisible(stage: Stage, keep_alive: bytes) -> None:
    whole = encoded(ANSWER)
    stage.will_say(whole)
    plain = stage.stream()
    stage.will_say(keep_alive + whole.replace(b"\r\n\r\n", b"\r\n\r\n" + keep_alive))
    assert [chunk.model_dump(exclude={"sdk_http_response"}) for chunk in stage.stream()] == [
        chunk.model_dump(exclude={"sdk_http_response"}) for chunk in plain
    ]


@pytest.mark.parametrize(
    "poison", [b": ping\r\n\r\n", b"event: ping\r\ndata: {}\r\n\r\n", b"data: [DONE]\r\n\r\n", b'data:{"a":1}\r\n\r\n']
)
def test_what_we_never_write_breaks_the_sdk(stage: Stage, poison: bytes) -> None:
    """The recorded facts behind the rule above; should an SDK become lenient, nothing of ours changes."""
    stage.will_say(encoded([TextDelta("Hi")]) + poison + encoded([TextDelta("!"), Done(Finish())]))
    with pytest.raises((genai_errors.APIError, ValueError)):
        stage.stream()


def test_error_chunk_raises(stage: Stage) -> None:
    error = Error("too busy", kind="overloaded", code="upstream_status", retry_after=12)
    written = encoded([TextDelta("Half"), error])
    assert written.rpartition(b"data: ")[2].startswith(b'{"error":')
    stage.will_say(written)
    chunks = stage.client.models.generate_content_stream(model="m", contents="Hi")
    assert next(chunks).text == "Half"
    with pytest.raises(genai_errors.APIError) as caught:
        next(chunks)
    assert caught.value.code == 503
    assert caught.value.status == "UNAVAILABLE"
    assert caught.value.message == "too busy"


def test_nothing_follows_an_error() -> None:
    encoder = DIALECT.encoder(EncodeContext(request=REQUEST), stream=True)
    assert encoder.feed([Error("x")])
    assert encoder.feed([TextDelta("late"), Done(Finish())]) == b""
    whole = DIALECT.encoder(EncodeContext(request=REQUEST), stream=False)
    assert json.loads(whole.feed([TextDelta("half"), Error("x")]))["error"]["code"] == 502
    assert whole.feed([Done(Finish())]) == b""


@pytest.mark.parametrize(
    ("error", "status", "word", "raised"),
    [
        (Error("bad", kind="invalid", param="contents"), 400, "INVALID_ARGUMENT", genai_errors.ClientError),
        (Error("who?", kind="auth"), 401, "UNAUTHENTICATED", genai_errors.ClientError),
        (Error("slow down", kind="rate_limit", retry_after=1.5), 429, "RESOURCE_EXHAUSTED", genai_errors.ClientError),
        (Error("gone", kind="not_found"), 404, "NOT_FOUND", genai_errors.ClientError),
        (Error("late", kind="timeout"), 504, "DEADLINE_EXCEEDED", genai_errors.ServerError),
        (Error("broken", kind="server"), 500, "INTERNAL", genai_errors.ServerError),
    ],
)
def test_http_errors(stage: Stage, error: Error, status: int, word: str, raised: type[Exception]) -> None:
    answer = DIALECT.encode_error(error, "req_1")
    assert answer.status == status
    stage.will_say(answer.body, status=status, kind="application/json")
    with pytest.raises(raised) as caught:
        stage.stream()
    assert isinstance(caught.value, genai_errors.APIError)
    assert (caught.value.code, caught.value.status, caught.value.message) == (status, word, error.message)
    again = DIALECT.decode_error(status, {}, answer.body)
    assert again.kind == ("upstream" if error.kind == "server" else error.kind)
    assert again.retry_after == error.retry_after


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"}
OVERFLOW = "The input token count (9) exceeds the maximum number of tokens allowed (8)."


@pytest.mark.parametrize(
    ("code", "word", "message", "details", "kind", "wait"),
    [
        (400, "INVALID_ARGUMENT", OVERFLOW, [], "context_length", None),
        (400, "INVALID_ARGUMENT", "API key not valid.", [{"reason": "API_KEY_INVALID"}], "auth", None),
        (429, "RESOURCE_EXHAUSTED", "Quota", [RETRY], "rate_limit", 12.0),
        (400, "FAILED_PRECONDITION", "x", [], "invalid", None),
        (413, "INVALID_ARGUMENT", "big", [], "too_large", None),
    ],
)
def test_errors_of_upstreams(code: int, word: str, message: str, details: list[Any], kind: str, wait: float | None) -> None:
    body = {"error": {"code": code, "message": message, "status": word, "details": details}}
    for shape in (body, [body]):
        error = DIALECT.decode_error(code, {}, msgspec.json.encode(shape))
        assert (error.kind, error.message, error.retry_after) == (kind, message, wait)


def test_errors_that_are_not_json() -> None:
    assert DIALECT.decode_error(503, {}, b"<html>").kind == "overloaded"
    assert DIALECT.decode_error(502, {}, b"").kind == "upstream"


def test_array_stream_is_one_json_array() -> None:
    events = [*ANSWER[:-1], WholePart(Image(source=Base64("image/png", "AAAA"))), ANSWER[-1]]
    written = encoded(events, array=True)
    chunks = json.loads(written)
    assert written.startswith(b"[{")
    assert b"},\r\n{" in written
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
    assert chunks[-2]["candidates"][0]["content"]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]
    assert json.loads(encoded([TextDelta("Hi"), Error("x")], array=True))[-1]["error"]["code"] == 502


@pytest.mark.parametrize("streamed", [True, False])
def test_a_refusal_without_words_gets_some(streamed: bool) -> None:
    """Clients ask again for an answer without text; a refusal is final."""
    written = encoded([Start(), Done(Finish("refusal"))], stream=streamed)
    decoder = DIALECT.decoder(DecodeContext(), stream=streamed)
    events = decoder.feed(written) + decoder.close()
    assert TextDelta(DECLINED) in events
    said = encoded([TextDelta("No.", refusal=True), Done(Finish("refusal"))], stream=streamed)
    assert DECLINED.encode() not in said
    assert b'"text":"No."' in said
    assert b'"finishReason":"SAFETY"' in said


def test_choices_end_one_by_one() -> None:
    events: list[Event] = [
        TextDelta("a"),
        TextDelta("b", choice=1),
        Done(Finish("stop"), 0, last=False),
        Done(Finish("length"), 1, usage=Usage(input_total=1, output_total=2)),
    ]
    for streamed in (True, False):
        decoder = DIALECT.decoder(DecodeContext(), stream=streamed)
        again = decoder.feed(encoded(events, stream=streamed)) + decoder.close()
        check_grammar(again)
        assert [event for event in again if isinstance(event, TextDelta)] == [TextDelta("a"), TextDelta("b", 1)]
        assert [(event.choice, event.finish.kind) for event in again if isinstance(event, Done)] == [(0, "stop"), (1, "length")]


def test_citations_become_grounding() -> None:
    events: list[Event] = [
        TextDelta("It rains."),
        WholePart(Citation(url="https://a.example", title="A", quote="It rains.")),
        WholePart(Citation(url="https://b.example")),
        Done(Finish()),
    ]
    for streamed in (True, False):
        decoder = DIALECT.decoder(DecodeContext(), stream=streamed)
        again = decoder.feed(encoded(events, stream=streamed)) + decoder.close()
        cited = [event.part for event in again if isinstance(event, WholePart)]
        assert cited == [Citation(url="https://a.example", title="A", quote="It rains."), Citation(url="https://b.example")]


def test_models_and_counts(stage: Stage) -> None:
    models = DIALECT.encode_models([ModelEntry("a/b", max_input=10, max_output=5), ModelEntry("c", display_name="See")])
    stage.will_say(msgspec.json.encode(models), kind="application/json")
    listed = list(stage.client.models.list())
    assert [(model.name, model.display_name, model.input_token_limit) for model in listed] == [
        ("models/a/b", "a/b", 10),
        ("models/c", "See", None),
    ]
    stage.will_say(msgspec.json.encode(DIALECT.encode_count(42)), kind="application/json")
    assert stage.client.models.count_tokens(model="m", contents="Hi").total_tokens == 42
    body = stage.bodies[-1]
    assert DIALECT.decode_count_request(body, model="m").turns[0].parts[0] == Text(text="Hi", raw={"text": "Hi"})
    inner = {"generateContentRequest": {"model": "models/x", "contents": [{"parts": [{"text": "Hi"}]}]}}
    assert DIALECT.decode_count_request(inner).model == "x"


# -- reasoning state through the client ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
def test_foreign_state_comes_back_through_the_sdk(stage: Stage, streamed: bool) -> None:
    """The SDK insists on base64, rewrites it URL-safe and replays streamed pieces one by one: the state must survive."""
    state = sealed("sig-of-claude" + "?>" * 20)
    events: list[Event] = [
        ThinkingDelta("Let me "),
        ThinkingDelta("think."),
        ThinkingDelta("", signature=state),
        *call(0, "get_weather", '{"city":"Paris"}'),
        Done(Finish("tool")),
    ]
    stage.will_say(encoded(events, stream=streamed), kind="text/event-stream" if streamed else "application/json")
    chat = stage.client.chats.create(model="m")
    if streamed:
        list(chat.send_message_stream("Weather?"))
    else:
        chat.send_message("Weather?")
    stage.will_say(encoded([TextDelta("Sunny"), Done(Finish())], stream=False), kind="application/json")
    answer = genai_types.Part.from_function_response(name="get_weather", response={"output": "sunny"})
    chat.send_message(answer)
    body = stage.bodies[-1]
    turns = DIALECT.decode_request(body, model="m").turns
    thinking, made = turns[1].parts
    assert isinstance(thinking, Thinking)
    assert isinstance(made, ToolCall)
    assert thinking.text == "Let me think."
    assert thinking.signature is not None
    assert thinking.signature.payload == state.payload
    assert made.signature is None
    assert turns[1].raw is None, "our envelope must not reach an upstream as it is"
    # The same turn without its thoughts, as other clients replay it: state that fits nothing is gone.
    for content in body["contents"]:
        content["parts"] = [part for part in content["parts"] if not part.get("thought")]
    assert [type(part) for part in DIALECT.decode_request(body, model="m").turns[1].parts] == [ToolCall]


def test_state_of_a_call_stays_on_the_call() -> None:
    state = sealed("gemini-sig", family="gemini")
    native = Opaque(family="gemini", kind="thought_signature", payload="bmF0aXZl")
    for streamed in (True, False):
        written = encoded(
            [*call(0, "a", "{}", signature=state), *call(1, "b", "{}", signature=native), Done(Finish())], stream=streamed
        )
        slots = re.findall(rb'"thoughtSignature":"([^"]+)"', written)
        assert [read_slot(slot.decode()) for slot in slots] == [
            Opaque(family="gemini", kind="thought_signature", payload=state.payload),
            native,
        ]


def test_two_thoughts_keep_two_signatures() -> None:
    first, second = sealed("one"), sealed("two")
    events: list[Event] = [
        ThinkingDelta("A"), ThinkingDelta("", signature=first), ThinkingDelta("B"), ThinkingDelta("", signature=second),
        Done(Finish()),
    ]  # fmt: skip
    for streamed in (True, False):
        written = encoded(events, stream=streamed)
        chunks = [json.loads(line[6:]) for line in written.split(b"\r\n") if line] if streamed else [json.loads(written)]
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"] if part != {"text": ""}]
        body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts}]}
        thoughts = DIALECT.decode_request(body, model="m").turns[1].parts
        assert [(part.text, part.signature and part.signature.payload) for part in thoughts if isinstance(part, Thinking)] == [
            ("A", first.payload),
            ("B", second.payload),
        ]


@pytest.mark.parametrize("slot", [PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode(), "", None])
def test_placeholders_are_no_signature(slot: str | None) -> None:
    assert read_slot(slot) is None


def test_slots_are_read_in_any_alphabet() -> None:
    envelope = sealed("x" * 100).payload
    for text in (envelope, base64.b64encode(envelope.encode()).decode(), base64.urlsafe_b64encode(envelope.encode()).decode()):
        read = read_slot(text)
        assert isinstance(read, Opaque)
        assert read.payload == envelope
    owed = read_slot(base64.b64encode(f"thinking.{digest_of('t')}.{envelope}".encode()).decode())
    assert isinstance(owed, ThinkingState)
    assert owed.fits("t")
    assert read_slot("c2hvcnQ") == Opaque(family="gemini", kind="thought_signature", payload="c2hvcnQ")


# -- answers of upstreams ------------------------------------------------------------------------------------------------------


def events_of(*chunks: Any, stream: bool = True, **context: Any) -> list[Event]:
    decoder = DIALECT.decoder(DecodeContext(**context), stream=stream)
    data = b"".join(
        b"data: %b\r\n\r\n" % (chunk if isinstance(chunk, bytes) else msgspec.json.encode(chunk)) for chunk in chunks
    )
    events = decoder.feed(data) + decoder.close()
    assert decoder.close() == []
    check_grammar(events)
    return events


def candidate(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, **fields}]}


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("STOP", "stop"), ("stop", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "filter"), ("RECITATION", "filter"),
        ("SPII", "filter"), ("BLOCKLIST", "filter"), ("IMAGE_SAFETY", "filter"), ("UNEXPECTED_TOOL_CALL", "malformed"),
        ("TOO_MANY_TOOL_CALLS", "malformed"), ("MALFORMED_RESPONSE", "malformed"), ("CONTINUATION", "continuation"),
        ("A_REASON_OF_THE_FUTURE", "stop"),
    ],
)  # fmt: skip
def test_finish_reasons(reason: str, kind: str) -> None:
    done = events_of(candidate({"text": "Hi"}, finishReason=reason, continuationToken="dG9r"))[-1]
    assert isinstance(done, Done)
    assert done.finish.kind == kind
    assert done.finish.raw == reason.upper()
    assert done.finish.details == ("dG9r" if kind == "continuation" else None)


_FAILED_CALLS = (
    "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE",
)  # fmt: skip


@pytest.mark.parametrize("reason", _FAILED_CALLS)
@pytest.mark.parametrize("parts", [[], [{"text": "Let me see."}]])
@pytest.mark.parametrize("client", ["anthropic_messages", "openai_chat", "openai_responses"])
def test_a_model_that_failed_to_call_is_an_error_abroad(client: str, parts: list[dict[str, Any]], reason: str) -> None:
    answer = candidate(*parts, finishReason=reason, finishMessage="print(x)")
    with pytest.raises(UpstreamStatus, match=rf"{reason}: print\(x\)") as caught:
        translate_response(answer, source="gemini", target=client)
    assert caught.value.code == "malformed_answer"
    stream = StreamTranslator(source="gemini", target=client)
    stream.feed(b"data: " + json.dumps(answer).encode() + b"\r\n\r\n")
    stream.close()
    assert stream.error is not None
    assert stream.done is None
    home = translate_response(answer, source="gemini", target="gemini").body["candidates"][0]
    assert home["finishReason"] == reason


def test_a_reason_that_nobody_knows_is_no_success_without_an_answer() -> None:
    empty = candidate(finishReason="MODEL_WENT_HOME", finishMessage="at five")
    with pytest.raises(UpstreamStatus, match="MODEL_WENT_HOME: at five"):
        translate_response(empty, source="gemini", target="openai_chat")
    said = candidate({"text": "Hi"}, finishReason="MODEL_WENT_HOME")
    assert translate_response(said, source="gemini", target="openai_chat").body["choices"][0]["finish_reason"] == "stop"
    for answer in (empty, said):
        home = translate_response(answer, source="gemini", target="gemini").body["candidates"][0]
        assert home["finishReason"] == "MODEL_WENT_HOME"


def test_a_signature_behind_calls_signs_the_first() -> None:
    signed = {"text": "", "thoughtSignature": "c2ln"}
    events = events_of(
        candidate({"functionCall": {"name": "a"}}),
        candidate({"functionCall": {"name": "b"}}),
        candidate(signed, finishReason="STOP"),
    )
    calls = [event for event in events if isinstance(event, ToolCallComplete)]
    assert [(event.name, event.signature is not None) for event in calls] == [("a", True), ("b", False)]


def test_a_signature_on_the_call_is_there_from_its_start() -> None:
    signed = {"functionCall": {"name": "a", "args": {}}, "thoughtSignature": "c2ln"}
    start = events_of(candidate(signed, finishReason="STOP"))[1]
    assert isinstance(start, ToolCallStart)
    assert start.signature == Opaque(family="gemini", kind="thought_signature", payload="c2ln")


def test_lone_surrogates_cost_one_character() -> None:
    chunk = rb'{"candidates":[{"content":{"parts":[{"text":"a\ud800b \\ud800 \ud83d\ude00"}]},"finishReason":"STOP"}]}'
    assert TextDelta("a\ufffdb \\ud800 \U0001f600") in events_of(chunk)
    written = encoded([TextDelta("a\ud800b"), Done(Finish())])
    assert "a\ufffdb".encode() in written


def test_junk_between_records_is_skipped() -> None:
    events = events_of(candidate({"text": "a"}), b"not json", candidate({"text": "b"}, finishReason="STOP"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b"]
    wrong = events_of({"candidates": "none"})
    assert isinstance(wrong[-1], Error)
    assert wrong[-1].code == "upstream_protocol"


def test_grounding_becomes_citations() -> None:
    metadata = {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"web": {"uri": "https://b.example"}},
            {"x": 1},
        ],
        "groundingSupports": [{"segment": {"text": "It rains.", "endIndex": 9}, "groundingChunkIndices": [0, 7]}],
    }
    sources = {"citationSources": [{"uri": "https://c.example", "startIndex": 0}, {"license": "MIT"}]}
    chunk = candidate({"text": "It rains."}, finishReason="STOP", groundingMetadata=metadata, citationMetadata=sources)
    cited = [event.part for event in events_of(chunk, candidate(groundingMetadata=metadata)) if isinstance(event, WholePart)]
    assert cited == [
        Citation(url="https://a.example", title="A", quote="It rains."),
        Citation(url="https://b.example"),
        Citation(url="https://c.example"),
    ]


def test_extras_stay_at_home() -> None:
    chunk = candidate({"text": "Hi"}, finishReason="STOP", safetyRatings=[{"category": "X"}], avgLogprobs=-0.5, index=0)
    events = events_of(chunk, keep_extras=True)
    for streamed in (True, False):
        written = encoded(events, stream=streamed, same_dialect=True)
        assert b'"safetyRatings":[{"category":"X"}]' in written
        assert b'"avgLogprobs":-0.5' in written
        assert b"safetyRatings" not in encoded(events, stream=streamed)


def test_generated_media_and_unknown_parts() -> None:
    events = events_of(
        candidate({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, {"thing": {}}, {}, finishReason="STOP")
    )
    parts = [msgspec.structs.replace(event.part, raw=None) for event in events if isinstance(event, WholePart)]
    assert parts == [Image(source=Base64("image/png", "AAAA")), Foreign(kind="thing", dialect="gemini")]


def test_a_lenient_upstream_may_forget_its_finish() -> None:
    assert isinstance(events_of(candidate({"text": "Hi"}))[-1], Error)
    assert isinstance(events_of(candidate({"text": "Hi"}), profile=Profile(lenient_end=True))[-1], Done)


def test_an_array_for_a_whole_answer() -> None:
    body = msgspec.json.encode([candidate({"text": "a"}), candidate({"text": "b"}, finishReason="STOP")])
    decoder = DIALECT.decoder(DecodeContext(), stream=False)
    assert decoder.feed(body) == []
    events = decoder.close()
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b"]
    assert isinstance(events[-1], Done)


def test_ids_are_made_from_the_seed() -> None:
    chunk = candidate({"functionCall": {"name": "a"}}, {"functionCall": {"name": "a"}}, finishReason="STOP")
    made = [[event.id for event in events_of(chunk, seed=seed) if isinstance(event, ToolCallComplete)] for seed in "xxy"]
    assert made[0] == made[1]
    assert len({*made[0], *made[2]}) == 4


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$.a.b[0].c", ["a", "b", 0, "c"]),
        ("a.b", ["a", "b"]),
        ("$['a b'][\"c.d\"][2]", ["a b", "c.d", 2]),
        (r"$['it\'s']", ["it's"]),
    ],
)
def test_json_paths(path: str, steps: list[str | int]) -> None:
    assert steps_of(path) == steps


@pytest.mark.parametrize("path", ["", "$", "$[0]", "$..a", "$.a[*]", "$.a[-1]", "$['a"])
def test_unreadable_paths_end_the_answer(path: str) -> None:
    with pytest.raises(UpstreamProtocol):
        steps_of(path)
    piece = {"functionCall": {"name": "f", "partialArgs": [{"jsonPath": path, "boolValue": True}]}}
    last = events_of(candidate(piece, finishReason="STOP"))[-1]
    assert isinstance(last, Error)
    assert last.fatal


@pytest.mark.parametrize("paths", [("$.a", "$.a.b"), ("$.a[1]",), ("$.a.b", "$.a[0]"), ("$.a[99999]",)])
def test_contradicting_values_end_the_answer(paths: tuple[str, ...]) -> None:
    pieces = [{"jsonPath": path, "boolValue": True} for path in paths]
    last = events_of(candidate({"functionCall": {"name": "f", "partialArgs": pieces}}, finishReason="STOP"))[-1]
    assert isinstance(last, Error)
    assert last.code == "upstream_protocol"


# -- anything at all -----------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([
    "contents", "parts", "role", "text", "thought", "thoughtSignature", "functionCall", "functionResponse", "name",
    "args", "id", "response", "inline_data", "mimeType", "data", "fileData", "fileUri", "tools", "functionDeclarations",
    "parameters", "type", "properties", "items", "generationConfig", "thinkingConfig", "thinkingBudget", "toolConfig",
    "functionCallingConfig", "mode", "systemInstruction", "candidates", "content", "finishReason", "index",
    "partialArgs", "jsonPath", "willContinue", "error", "usageMetadata", "promptTokenCount", "groundingMetadata",
    "groundingChunks", "web", "promptFeedback", "blockReason", "code",
])  # fmt: skip
LEAVES = st.sampled_from(
    ["", "user", "model", "a", "$.a", "STOP", "ANY", "image/png", "AAAA", 0, 1, -1, 1.5, True, False, None]
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


PARTS = st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=3), max_size=3)
CONTENTS = st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "model"]), "parts": PARTS}), min_size=1, max_size=3)


@given(CONTENTS, st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_body_is_a_request_or_an_invalid_one(contents: list[Any], fields: dict[str, Any]) -> None:
    body = {**fields, "contents": contents}
    try:
        request = decode(body)
    except InvalidRequest as error:
        if not error.path:
            raise
        return
    assert DIALECT.encode_request(request, EncodeTarget("m")).body == body


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=4), st.booleans())
def test_any_chunks_end_in_one_terminal(chunks: list[dict[str, Any]], stream: bool) -> None:
    decoder = DIALECT.decoder(DecodeContext(), stream=stream)
    data = b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks) if stream else msgspec.json.encode(chunks)
    check_grammar(decoder.feed(data) + decoder.close())


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=4))
def test_any_candidates_end_in_one_terminal(parts: list[dict[str, Any]]) -> None:
    for keep_extras in (True, False):
        decoder = DIALECT.decoder(DecodeContext(keep_extras=keep_extras), stream=True)
        data = b"data: %b\r\n\r\n" % msgspec.json.encode(candidate(*parts, finishReason="STOP"))
        events = decoder.feed(data) + decoder.close()
        check_grammar(events)
        for streamed in (True, False):
            assert encoded(events, stream=streamed, same_dialect=keep_extras)

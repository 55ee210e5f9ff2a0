"""Events folded into an answer: the same whatever the cuts and batches, and never a call that did not complete."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from athena.calls.builder import AnswerBuilder, fold
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
from athena.model.parts import Citation, Foreign, Opaque, Part, Refusal, Text, Thinking, ToolCall

_SIGNATURE = Opaque("anthropic", "signature", "sig")
_REDACTED = Opaque("anthropic", "redacted", "secret")


def parts(*events: Event) -> tuple[Part, ...]:
    (choice,) = fold([*events, Done(Finish("stop"))]).choices
    return choice.parts


def whole_call(number: int, name: str = "f", arguments: str = "{}") -> list[Event]:
    return [
        ToolCallStart(number, f"id{number}", name),
        ToolCallDelta(number, arguments),
        ToolCallComplete(number, f"id{number}", name, arguments),
    ]


def test_head_usage_and_finish() -> None:
    answer = fold(
        [
            Start("resp_1", "model", 7, Usage(input_total=3), {"system_fingerprint": "fp"}),
            TextDelta("hi"),
            Extra({"provider": "x"}),
            Extra({"logprobs": 1}, choice=0),
            Extra({"audio": 2}, choice=0, delta=True),
            KeepAlive(),
            Done(Finish("length", "max_tokens"), usage=Usage(input_total=5, output_total=2)),
        ]
    )
    assert (answer.id, answer.model, answer.created) == ("resp_1", "model", 7)
    assert answer.usage == Usage(input_total=5, output_total=2)
    assert answer.extras == {"system_fingerprint": "fp", "provider": "x"}
    (choice,) = answer.choices
    assert choice.finish == Finish("length", "max_tokens")
    assert (choice.extras, choice.delta_extras) == ({"logprobs": 1}, {"audio": 2})
    assert answer.error is None


def test_early_usage_stays_when_no_other_comes() -> None:
    assert fold([Start(usage=Usage(input_total=3)), Done(Finish())]).usage == Usage(input_total=3)


def test_parts_keep_their_order() -> None:
    assert parts(
        ThinkingDelta("hm "), ThinkingDelta("so"), ThinkingDelta(signature=_SIGNATURE),
        TextDelta("Let me "), TextDelta("look."), *whole_call(0), TextDelta("after"), TextDelta("no", refusal=True),
    ) == (
        Thinking(text="hm so", signature=_SIGNATURE), Text(text="Let me look."), ToolCall(id="id0", name="f", arguments="{}"),
        Text(text="after"), Refusal(text="no"),
    )  # fmt: skip


def test_a_signature_ends_a_thinking_block() -> None:
    other = Opaque("anthropic", "signature", "other")
    assert parts(
        ThinkingDelta("a"), ThinkingDelta(signature=_SIGNATURE), ThinkingDelta("b"), ThinkingDelta(signature=other)
    ) == (Thinking(text="a", signature=_SIGNATURE), Thinking(text="b", signature=other))


def test_redacted_blocks_stand_alone() -> None:
    redacted = Thinking(signature=_REDACTED)
    assert parts(ThinkingDelta(signature=_REDACTED), ThinkingDelta(signature=_REDACTED)) == (redacted, redacted)
    assert parts(ThinkingDelta("unsigned"), ThinkingDelta(signature=_REDACTED)) == (Thinking(text="unsigned"), redacted)


def test_citations_join_their_text() -> None:
    citation = Citation(url="https://example.org", title="t")
    assert parts(TextDelta("a"), WholePart(citation), TextDelta("b")) == (Text(text="ab", citations=(citation,)),)
    assert parts(WholePart(citation)) == (citation,)


def test_opaque_parts_stay_where_they_came() -> None:
    foreign = Foreign(kind="server_tool_use", dialect="anthropic_messages", raw={"x": 1})
    assert parts(TextDelta("a"), WholePart(foreign), TextDelta("b")) == (Text(text="a"), foreign, Text(text="b"))


def test_signed_text_may_be_empty() -> None:
    signature = Opaque("gemini", "thought_signature", "s")
    assert parts(TextDelta("", signature=signature)) == (Text(text="", signature=signature),)


def test_interleaved_calls_stand_in_order_of_their_starts() -> None:
    assert [part.name for part in parts(
        ToolCallStart(0, "a", "first"), ToolCallStart(1, "b", "second"), ToolCallDelta(1, "{}"), ToolCallDelta(0, "{"),
        ToolCallComplete(1, "b", "second", "{}"), TextDelta("x"), ToolCallDelta(0, "}"),
        ToolCallComplete(0, "a", "first", "{}"),
    ) if isinstance(part, ToolCall)] == ["first", "second"]  # fmt: skip


def test_what_did_not_complete_is_not_there() -> None:
    answer = fold(
        [
            ToolCallStart(0, "a", "cut"),
            ToolCallDelta(0, '{"x":'),
            Error("cut", fatal=False, call=0),
            *whole_call(1),
            Done(Finish("length")),
        ]
    )
    assert [part.name for part in answer.choices[0].parts if isinstance(part, ToolCall)] == ["f"]
    assert [note.message for note in answer.notes] == ["cut"]
    assert answer.error is None


def test_fatal_error_marks_the_answer() -> None:
    answer = fold([TextDelta("half"), ToolCallStart(0, "a", "f"), Error("gone")])
    assert answer.error == Error("gone")
    assert answer.choices[0].finish is None
    assert answer.choices[0].parts == (Text(text="half"),)


def test_complete_call_without_a_start_counts() -> None:
    assert parts(ToolCallComplete(0, "a", "f", "{}")) == (ToolCall(id="a", name="f", arguments="{}"),)


def test_choices_are_apart_and_sorted() -> None:
    answer = fold(
        [TextDelta("b", 1), TextDelta("a", 0), TextDelta("b", 1), Done(Finish(), 1, last=False), Done(Finish("length"), 0)]
    )
    assert [(choice.index, choice.parts, choice.finish and choice.finish.kind) for choice in answer.choices] == [
        (0, (Text(text="a"),), "length"),
        (1, (Text(text="bb"),), "stop"),
    ]


def test_an_empty_answer_is_an_answer() -> None:
    (choice,) = fold([Done(Finish())]).choices
    assert choice.parts == ()


# -- streamed and whole agree ------------------------------------------------------------------------------------------------

_TEXT = st.text(alphabet="ab é\n", min_size=1, max_size=12)


@st.composite
def _answers(draw: st.DrawFn) -> list[list[Event]]:
    """Parts of an answer, each as the events of a whole body: one delta per part."""
    made: list[list[Event]] = []
    kinds = draw(st.lists(st.sampled_from(["text", "refusal", "thinking", "redacted", "call", "whole"]), max_size=7))
    for number, kind in enumerate(kinds):
        if kind in ("text", "refusal"):
            made.append([TextDelta(draw(_TEXT), refusal=kind == "refusal")])
        elif kind == "thinking":
            made.append([ThinkingDelta(draw(_TEXT)), ThinkingDelta(signature=_SIGNATURE)])
        elif kind == "redacted":
            made.append([ThinkingDelta(signature=_REDACTED)])
        elif kind == "call":
            arguments = json.dumps({"x": draw(_TEXT)})
            made.append(whole_call(number, draw(st.sampled_from(["f", "g"])), arguments))
        else:
            made.append([WholePart(Foreign(kind="k", dialect="d", raw={"n": number}))])
    return made


def _pieces(draw: st.DrawFn, event: Event) -> list[Event]:
    """The same event in smaller ones, with nothings in between."""
    field = "arguments" if isinstance(event, ToolCallDelta) else "text"
    text: Any = getattr(event, field, None)
    if not isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta) or not text:
        return [event]
    place = draw(st.integers(0, len(text)))
    cut: list[Event] = [msgspec.structs.replace(event, **{field: part}) for part in (text[:place], text[place:])]
    nothings: list[Event] = [KeepAlive(), TextDelta(""), ThinkingDelta("")]
    nothing = draw(st.sampled_from(nothings))
    return [cut[0], nothing, cut[1]]


@given(_answers(), st.data())
def test_any_cut_and_batch_gives_the_same_answer(whole: list[list[Event]], data: st.DataObject) -> None:
    events: list[Event] = [event for part in whole for event in part]
    expected = fold([*events, Done(Finish("stop"))])
    cut: list[Event] = []
    for event in events:
        cut += data.draw(_cut_of(event))
    cut.append(Done(Finish("stop")))
    builder = AnswerBuilder()
    place = data.draw(st.integers(0, len(cut)))
    builder.feed(cut[:place])
    builder.feed(cut[place:])
    assert builder.answer() == expected


@st.composite
def _cut_of(draw: st.DrawFn, event: Event) -> list[Event]:
    return _pieces(draw, event)

"""The stage of an exchange: several channels and choices, native calls beside calls in text, endings."""

from __future__ import annotations

import msgspec
import pytest

from athena.formats.declared.description import Call, FormatDescription
from athena.formats.machine.engine import TextParser
from athena.formats.machine.policies import Policies
from athena.formats.machine.speech import Channel
from athena.formats.machine.stage import FormatOptions, FormatStage
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
)
from athena.model.limits import Limits
from athena.model.parts import Opaque
from formats.case_files import TOOLS

KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:3<|tool_call_argument_begin|>"
    '{"city": "Tokyo"}<|tool_call_end|><|tool_calls_section_end|>'
)
CUT = KIMI[: KIMI.index("kyo")]


def done(kind: FinishKind = "stop", *, choice: int = 0, last: bool = True) -> Done:
    return Done(Finish(kind, kind), choice, Usage(input_total=43, output_total=12) if last else None, last)


def run(events: list[Event], *, options: FormatOptions | str = "auto", limits: Limits | None = None) -> list[Event]:
    """All at once and one by one must agree."""
    whole = FormatStage(options, tools=TOOLS, limits=limits or Limits(), seed="s").feed(events)
    stage = FormatStage(options, tools=TOOLS, limits=limits or Limits(), seed="s")
    singly = [out for event in events for out in stage.feed([event])]
    assert [event for event in singly if not isinstance(event, ToolCallDelta)] == [
        event for event in whole if not isinstance(event, ToolCallDelta)
    ]
    return whole


def native(number: int, name: str = "get_weather", arguments: str = '{"city":"Tokyo"}', choice: int = 0) -> list[Event]:
    return [
        ToolCallStart(number, f"call_{number}", name, choice),
        ToolCallDelta(number, arguments, choice),
        ToolCallComplete(number, f"call_{number}", name, arguments, choice),
    ]


def completed(events: list[Event]) -> list[tuple[int, str, str, str]]:
    return [(one.call, one.id, one.name, one.arguments) for one in events if isinstance(one, ToolCallComplete)]


def test_the_worked_example_of_the_requirements_at_every_chunking() -> None:
    pieces = [
        "Need weather. ", " <|tool_calls_section_begin|>", " <|tool_call_begin|>", " functions", ".get_weather", ":", "3",
        " <|tool_call_argument_begin|>", ' {"', "city", '": "Tokyo"}', " <|tool_call_end|>", " <|tool_calls_section_end|>",
    ]  # fmt: skip
    text = "".join(pieces)
    for chunks in (pieces, [text], list(text)):
        events: list[Event] = [Start(id="x"), *(ThinkingDelta(chunk) for chunk in chunks), done()]
        out = FormatStage("kimi", tools=TOOLS).feed(events)
        thinking = "".join(one.text for one in out if isinstance(one, ThinkingDelta))
        assert thinking.rstrip() == "Need weather."
        assert completed(out) == [(0, "functions.get_weather:3", "get_weather", '{"city": "Tokyo"}')]
        assert not [one for one in out if isinstance(one, TextDelta)]
        assert isinstance(out[-1], Done)
        assert out[-1].finish.kind == "tool"
        assert out[-1].usage == Usage(input_total=43, output_total=12)


def test_plain_answers_pass_as_the_same_objects() -> None:
    events: list[Event] = [
        Start(),
        TextDelta("Hello"),
        TextDelta(" wor"),
        TextDelta("ld, 2 > 1.\nAnd"),
        TextDelta(" bye."),
        done(),
    ]
    out = run(events)
    assert all(one is other for one, other in zip(out[2:], events[2:], strict=True))
    assert out == events


@pytest.mark.parametrize("format_id", ["auto", "hermes", "harmony", "qwen_agent", "kimi_k2"])
@pytest.mark.parametrize("channel", ["text", "reasoning"])
def test_parts_that_are_made_late_know_what_was_said(format_id: str, channel: Channel) -> None:
    call = '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"}}</tool_call>'
    for before in (
        "Well.",
        "Well.\n",
        "Well. `",
        "Well.\n```\n",
        " Well",
        "to",
        "tomorrow ",
        "a\n\n  ",
        "x_",
        "",
        " ",
        "<think>",
    ):
        for text in (before + call + " So", before + KIMI, before + "</think>ok", before + "[x](y) and `z`"):
            for cut in range(1, len(before) + 4):
                looking, feeding = TextParser(format_id, channel=channel), TextParser(format_id, channel=channel)
                said: list[Event] = []
                for piece in (text[:cut], text[cut : cut + 9], text[cut + 9 :]):
                    kind = TextDelta if channel == "text" else ThinkingDelta
                    said += [kind(piece)] if looking.is_plain(piece) else looking.feed(piece)
                said += looking.close()
                fed = [*feeding.feed(text[:cut]), *feeding.feed(text[cut : cut + 9]), *feeding.feed(text[cut + 9 :])]
                fed += feeding.close()
                assert _joined(said) == _joined(fed), (text, cut)
                assert looking.counts == feeding.counts


def _joined(events: list[Event]) -> list[tuple[str, str]]:
    """The events with adjacent pieces of one kind as one."""
    joined: list[tuple[str, str]] = []
    for event in events:
        name, text = type(event).__name__, event.text if isinstance(event, TextDelta | ThinkingDelta) else repr(event)
        if joined and joined[-1][0] == name and isinstance(event, TextDelta | ThinkingDelta):
            joined[-1] = (name, joined[-1][1] + text)
        else:
            joined.append((name, text))
    return joined


def test_a_first_piece_with_more_than_words_is_told_in_parts() -> None:
    state = Opaque(family="openai", kind="signature", payload="s")
    assert run([TextDelta("Hi", signature=state)]) == [TextDelta("Hi"), TextDelta("", signature=state)]


def test_without_tools_nothing_is_touched() -> None:
    events: list[Event] = [TextDelta(KIMI), done()]
    assert FormatStage("kimi_k2", tools=()).feed(events) == events


def test_records_between_pieces_of_a_marker_do_not_break_it() -> None:
    middle = len(KIMI) // 2
    events: list[Event] = [
        TextDelta(KIMI[:9]),
        Extra({"x": 1}),
        KeepAlive(),
        TextDelta(KIMI[9:middle]),
        TextDelta(KIMI[middle:]),
        done(),
    ]
    assert len(completed(run(events))) == 1


def test_other_content_releases_a_possible_marker() -> None:
    out = run([TextDelta("a <|tool"), ThinkingDelta("b <"), TextDelta("c"), done()])
    assert "".join(one.text for one in out if isinstance(one, TextDelta)) == "a <|toolc"
    assert [type(one) for one in out][:3] == [TextDelta, TextDelta, ThinkingDelta]


def test_calls_in_both_channels_and_choices_are_numbered_together() -> None:
    events: list[Event] = [
        ThinkingDelta(KIMI), TextDelta(KIMI.replace("Tokyo", "Rome")), TextDelta(KIMI, 1), done(last=False), done(choice=1),
    ]  # fmt: skip
    out = run(events)
    assert [call[0] for call in completed(out)] == [0, 1, 2]
    assert len({call[1] for call in completed(out)}) == 3
    assert [one.choice for one in out if isinstance(one, ToolCallComplete)] == [0, 0, 1]


def test_a_native_call_before_its_double_in_text() -> None:
    stage = FormatStage("kimi_k2", tools=TOOLS)
    out = stage.feed([*native(0), TextDelta(KIMI), done("tool")])
    assert completed(out) == [(0, "call_0", "get_weather", '{"city":"Tokyo"}')]
    assert stage.counts.doubles == 1


def test_a_native_call_after_its_double_in_text() -> None:
    out = run([TextDelta("x " + KIMI), *native(0), done("tool")])
    assert completed(out) == [(0, "functions.get_weather:3", "get_weather", '{"city": "Tokyo"}')]


def test_another_native_call_is_no_double() -> None:
    out = run([TextDelta(KIMI), *native(0, arguments='{"city":"Rome"}'), *native(1), done("tool")])
    assert [(call[0], call[3]) for call in completed(out)] == [(0, '{"city": "Tokyo"}'), (1, '{"city":"Rome"}')]


def test_a_call_in_text_while_a_native_one_is_open() -> None:
    start, delta, end = native(0)
    out = run([start, TextDelta("t" + KIMI + " after"), delta, end, TextDelta("!"), done("tool")])
    assert len(completed(out)) == 1
    assert "".join(one.text for one in out if isinstance(one, TextDelta)) == "t after!"
    other = run([start, TextDelta(KIMI.replace("Tokyo", "Rome")), delta, end, done("tool")])
    assert [call[0] for call in completed(other)] == [0, 1]


def test_a_cut_call_is_an_error_unless_the_upstream_ran_out_of_tokens() -> None:
    out = run([TextDelta(CUT), done("stop")])
    assert isinstance(out[-1], Error)
    assert out[-1].fatal
    assert (out[-1].code, out[-1].call) == ("truncated_call", 0)
    assert not completed(out)
    out = run([TextDelta(CUT), done("length")])
    assert isinstance(out[-1], Done)
    assert out[-1].finish.kind == "length"
    assert [one.fatal for one in out if isinstance(one, Error)] == [False]
    assert not completed(out)


def test_a_whole_call_and_length_stays_length() -> None:
    out = run([TextDelta(KIMI), done("length")])
    assert isinstance(out[-1], Done)
    assert out[-1].finish.kind == "length"
    assert len(completed(out)) == 1


def test_an_upstream_error_ends_with_what_was_held() -> None:
    out = run([TextDelta("a <|to"), Error("gone")])
    assert out == [TextDelta("a "), TextDelta("<|to"), Error("gone")]
    out = run([TextDelta(CUT), Error("gone"), TextDelta("never")])
    assert isinstance(out[-1], Error)
    assert out[-1].message == "gone"
    assert not completed(out)


def test_a_malformed_call_ends_the_answer() -> None:
    out = run([TextDelta(KIMI.replace('"Tokyo"', "Tokyo")), TextDelta("more"), done()])
    assert isinstance(out[-1], Error)
    assert out[-1].fatal
    assert out[-1].code == "malformed_call"


def test_limits_are_typed_errors() -> None:
    out = run([TextDelta(KIMI), done()], limits=Limits(argument_chars=5))
    assert isinstance(out[-1], Error)
    assert (out[-1].code, out[-1].fatal) == ("arguments_too_large", True)


@pytest.mark.parametrize("together", [False, True])
def test_a_signature_of_reasoning_that_held_a_call_goes(together: bool) -> None:
    """Its maker signed the text with the call in it, and would refuse what is left with that signature."""
    signature = Opaque(family="anthropic", kind="signature", payload="p")
    later = Opaque(family="anthropic", kind="signature", payload="q")
    first = [ThinkingDelta(f"Hm. {KIMI}", signature=signature)]
    if not together:
        first = [ThinkingDelta(f"Hm. {KIMI}"), ThinkingDelta("", signature=signature)]
    out = run([*first, ThinkingDelta("More."), ThinkingDelta("", signature=later), done()])
    assert [event.signature for event in out if isinstance(event, ThinkingDelta) and event.signature] == [later]
    assert "".join(event.text for event in out if isinstance(event, ThinkingDelta)).startswith("Hm. ")
    assert any(isinstance(event, ToolCallComplete) for event in out)


def test_signatures_and_refusals_keep_their_place() -> None:
    signature = Opaque(family="anthropic", kind="signature", payload="p")
    out = run([ThinkingDelta("a <|to"), ThinkingDelta("", signature=signature), TextDelta(KIMI, refusal=True), done()])
    assert out[:3] == [ThinkingDelta("a "), ThinkingDelta("<|to"), ThinkingDelta("", signature=signature)]
    assert out[3] == TextDelta(KIMI, refusal=True)


def test_tokens_from_configuration() -> None:
    options = FormatOptions(
        "kimi_k2", tokens={"section_begin": "<<begin>>", "section_end": "<<end>>", "call_begin": "<<call>>"}
    )
    text = "<<begin>><<call>>functions.get_time:0<|tool_call_argument_begin|>{}<|tool_call_end|><<end>>ok"
    out = run([TextDelta(text), done()], options=options)
    assert [call[2] for call in completed(out)] == ["get_time"]
    assert "".join(one.text for one in out if isinstance(one, TextDelta)) == "ok"


def test_tagged_calls_count_when_the_model_stopped_by_itself() -> None:
    text = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value>"
    assert completed(run([TextDelta(text), done("stop")]))[0][3] == '{"city":"Paris"}'
    assert not completed(run([TextDelta(text), done("length")]))


def test_thinking_in_text_can_be_kept() -> None:
    options = FormatOptions("hermes", policies=Policies(thinking="keep"))
    out = run([TextDelta("<think>a</think>b"), done()], options=options)
    assert "".join(one.text for one in out if isinstance(one, TextDelta)) == "<think>a</think>b"


def test_stage_reports_formats_and_notes() -> None:
    stage = FormatStage(tools=TOOLS)
    stage.feed([TextDelta(KIMI.replace("get_weather", "rm")), done()])
    assert stage.formats == ("kimi_k2",)
    assert [note.code for note in stage.notes] == ["unknown_tool"]
    assert msgspec.structs.asdict(stage.counts)["unknown_tools"] == 1


def test_a_large_text_is_searched_in_pieces_and_calls_across_their_edges_are_found() -> None:
    prose = "so it goes. " * 12_000
    for before in (0, 64 * 1024 - 20, 64 * 1024 - 100, 64 * 1024):
        text = prose[:before] + KIMI + prose
        out = run([Start(id="x"), TextDelta(prose), TextDelta(text), done()])
        assert completed(out) == [(0, "functions.get_weather:3", "get_weather", '{"city": "Tokyo"}')]
        texts = [one.text for one in out if isinstance(one, TextDelta)]
        assert "".join(texts) == prose + prose[:before] + prose
        assert max(map(len, texts)) <= 64 * 1024


@pytest.mark.parametrize("declared", [False, True], ids=["by the rule", "by the format file"])
def test_reasoning_that_the_prompt_opened(declared: bool) -> None:
    """Raw text that begins inside reasoning has only its closing delimiter."""
    described = FormatDescription(id="acme", call=Call(body="json", begin="<call>", end="</call>"), starts_in_thinking=True)
    options = FormatOptions(declared=described) if declared else FormatOptions("hermes", starts_in_thinking=True)
    text = TextDelta("Let me see.\n</think>\n\nHere it is.")
    events = run([text, done()], options=options)
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)).strip() == "Let me see."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Here it is."
    # A server that tells reasoning and text apart has closed it itself.
    events = run([ThinkingDelta("Let me see."), TextDelta("Here it is."), done()], options=options)
    assert [type(event) for event in events] == [ThinkingDelta, TextDelta, Done]

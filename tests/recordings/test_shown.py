"""What a viewer reads of an exchange."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from athena.recording import file
from athena.recording.show import view_of
from athena.shells.cli import cli
from athena.shells.cli.lanes import printed
from support.recorded import Recorded

KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city":"Oslo"}<|tool_call_end|><|tool_calls_section_end|>'
)
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bergen"}}\n</tool_call>'


def said(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    record = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def test_every_call_is_named_after_the_format_in_which_it_was_written() -> None:
    """Whether its section has ended or not, and whatever format another call has."""
    both = f"Two. {KIMI}\n{HERMES}"
    pieces = [both[at : at + 20] for at in range(0, len(both), 20)]
    for reads in ([said(both)], [said(piece) for piece in pieces]):
        recording = Recorded().serve("openai_chat", "openai_chat/m", (200, [*reads, b"data: [DONE]\n\n"]))
        view = view_of(recording)
        assert [mark.rule for mark in view.marks if mark.kind == "text_call"] == ["kimi_k2", "hermes"]
        assert [call.came_as for call in view.calls] == ["text in text, kimi_k2", "text in text, hermes"]
        assert {mark.rule for mark in view.marks if mark.kind == "hold"} <= {"auto", "head"}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lanes_keep_to_their_columns(columns: int) -> None:
    """Wide letters, words without an end, tabs and what a terminal would obey."""
    words = ["天气很好，我们去看看。" * 5, "x" * 500, "\x1b[31mred\t\r\n\u202e", "\N{SLEUTH OR SPY}\ufe0f", f"Go. {KIMI}"]
    recording = Recorded().serve("anthropic_messages", "openai_chat/m", (200, [*map(said, words), b"data: [DONE]\n\n"]))
    lines = printed(view_of(recording), columns).split("\n")
    assert max(map(cell_len, lines)) <= columns
    assert not any("\x1b" in line or "\u202e" in line or "\t" in line or "\r" in line for line in lines)
    width = (columns - 16) // 3
    first = next(number for number, line in enumerate(lines) if line.startswith("-----"))
    last = lines.index("CALLS")
    for line in lines[first + 1 : last - 1]:
        left, _, rest = line.partition(" | ")
        assert cell_len(left) == 10 + width
        assert cell_len(rest.partition(" | ")[0]) in (width, cell_len(rest))


def test_what_records_have_in_common_stands_once() -> None:
    texts = [f"word{number} " for number in range(50)]
    recording = Recorded().serve("openai_responses", "openai_chat/m", (200, [*map(said, texts), b"data: [DONE]\n\n"]))
    shown = printed(view_of(recording), 400)
    assert shown.count("chat.completion.chunk") == 1
    assert [text for text in texts if f'\N{HORIZONTAL ELLIPSIS}"content": "{text}"' not in shown] == texts[:1]


def test_a_list_says_that_there_are_more(tmp_path: Path) -> None:
    recorded = Recorded()
    kept = [recorded.serve("openai_chat", "openai_chat/m", (200, [said("Hi"), b"data: [DONE]\n\n"])) for _ in range(3)]
    (tmp_path / "three.athena").write_bytes(b"".join(map(file.encode, kept)))
    config = tmp_path / "athena.yml"
    config.write_text(json.dumps({"base_url": "http://127.0.0.1:9/v1", "state_dir": str(tmp_path / "s"), "port": 1}))

    def run(*arguments: str) -> Result:
        command = ["record", *arguments, "--config", str(config)]
        return CliRunner().invoke(cli, command, catch_exceptions=False, standalone_mode=False)

    run("import", str(tmp_path / "three.athena"))
    more = "athena: there are more than these 2; --limit shows more, a filter fewer\n"
    cut = run("list", "--limit", "2")
    assert (len(cut.stdout.splitlines()), cut.stderr) == (3, more)
    assert (len(run("list", "--limit", "2", "--json").output.splitlines()), run("list", "--limit", "3").stderr) == (2, "")


def test_text_that_waits_is_shown() -> None:
    """What a marker began with, and what a call that has not begun yet was read from; of very long text only how much it is."""
    pieces = [
        "Soon. <|tool_calls_sec",
        "tion_begin|><|tool_call_begin|>functi",
        "ons.get_weather:0<|tool_call_argument_begin|>{}",
    ]
    begun = [said(piece) for piece in pieces]
    long = [said("<tool_call>"), said('{"argum'), said("x" * 500)]
    for reads, waits in ((begun, pieces[0].removeprefix("Soon. ")), (long, "<tool_call>")):
        recording = Recorded().serve("openai_chat", "openai_chat/m", (200, [*reads, b"data: [DONE]\n\n"]))
        held = [mark.text for mark in view_of(recording).marks if mark.kind == "hold" and mark.rule == "auto"]
        assert held[0] == f'{len(waits)} characters wait, which may be the beginning of a call: "{waits}"'
    assert held[-1] == "518 characters wait, which may be the beginning of a call"

"""`athena demo`: what it shows is what the engine does, for every format, on a terminal and elsewhere."""

from __future__ import annotations

import copy
import json

import pytest
from click.testing import CliRunner

from athena.formats import all_formats, get_format
from athena.shells.cli import cli
from athena.shells.showcase import CALL, SCENES, Scene, play, scene_of
from support.examples import IS_DEEP


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["demo", *arguments])
    assert result.exit_code in (0, None), result.output
    return result.output


def test_any_format_is_repaired() -> None:
    """Whatever format is asked for, the client of the demo receives the one call, whole, and nothing of its markup."""
    names = [found.id for found in all_formats()]
    chosen = names if IS_DEEP else ["beam", *names[::9]]
    records = [json.loads(line) for line in run(*chosen, "--json").splitlines()]
    assert [record["format"] for record in records] == chosen
    for record in records:
        received = record["received"]
        assert received["name"] == CALL["name"] in record["written"], record
        assert json.loads(received["arguments"]) == CALL["arguments"], record
        assert received["stop_reason"] == "tool_use"
        assert "Tokyo" not in received["text"] + received["thinking"]


@pytest.mark.parametrize(
    "scene", [scene for scene in SCENES if get_format(scene.format).streams == "yes"], ids=lambda scene: scene.format
)
def test_scenes_stream(scene: Scene) -> None:
    """The arguments reach the client while the model is still writing them."""
    received = [(step.received.name, step.received.arguments) for step in map(copy.deepcopy, play(scene))]
    assert received[0] == ("", "")
    assert any(name and arguments != received[-1][1] for name, arguments in received)


def test_plain_output_shows_both_sides() -> None:
    text = run("kimi_k2")
    assert "<|tool_call_begin|>functions.get_weather:0" in text
    assert 'tool_use get_weather {"city":"Tokyo","days":3}' in text
    assert "athena init" in text


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    text = run("hermes", "--pace", "0")
    assert "the model writes" in text
    assert "your agent receives" in text
    assert "\x1b[31m<tool_call>" in text


def test_wrong_use_is_named() -> None:
    unknown = CliRunner().invoke(cli, ["demo", "kimi_k9"], standalone_mode=False)
    assert "unknown format 'kimi_k9'" in str(unknown.exception)
    both = CliRunner().invoke(cli, ["demo", "--serve", "hermes"])
    assert both.exit_code == 2
    assert "--serve" in both.output


def test_a_format_that_begins_the_answer_has_nothing_before_it() -> None:
    assert scene_of("beam").before == ""
    assert scene_of("hermes").before

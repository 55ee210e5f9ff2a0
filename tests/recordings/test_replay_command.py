"""The options of `athena replay`, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from athena.recording import file
from athena.recording.replay import Changes, replay
from athena.shells.cli import cli
from support.athena_process import environment, start_athena
from support.patience import PATIENCE

SAMPLE = Path(__file__).parents[1] / "cases" / "recordings" / "leaked_call.athena"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["replay", str(SAMPLE), *arguments], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--serve --format off", "--format has no effect with --serve"),
        ("--serve --case", "--case has no effect with --serve"),
        ("--serve --chunks recorded", "--chunks has no effect with --serve"),
        ("--serve --keep-text", "--keep-text has no effect with --serve"),
        ("--case --route", "--route has no effect with --case"),
        ("--case --json", "--json has no effect with --case"),
        ("--case --port 9000", "--port has no effect with --case"),
        ("--port 9000", "--port has no effect without --serve"),
        ("--pace fast", "--pace has no effect without --serve"),
        ("--keep-text", "--keep-text has no effect without --case"),
    ],
)
def test_an_option_without_effect_is_wrong_usage(options: str, words: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        run(*options.split())
    assert caught.value.message == words


def test_the_format_standard_is_that_of_native_calls() -> None:
    standard, off = run("--format", "standard", "--json"), run("--format", "off", "--json")
    assert standard.return_value == 1
    assert standard.output == off.output


def test_what_a_client_of_another_dialect_would_receive_is_told() -> None:
    (recording,) = file.decode(SAMPLE.read_bytes())
    received = replay(recording, Changes(client="openai_chat")).output
    assert run("--client", "openai_chat").output.splitlines()[-1] == (
        f"  the client would receive {len(received)} bytes of openai_chat, which are not compared; --json prints them"
    )
    assert json.loads(run("--client", "openai_chat", "--json").output)["received"] == received.decode()
    for options in ([], ["--client", recording.request.dialect]):
        assert run(*options).output == "req_1: equal\n"
        assert "received" not in json.loads(run(*options, "--json").output)


def test_a_server_that_is_interrupted_ends_well(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with open(os.devnull, "r+b") as nothing, open(errors, "wb") as said:
        streams = nothing.fileno(), nothing.fileno(), said.fileno()
        process = start_athena(["replay", "--serve", str(SAMPLE)], streams, tmp_path, environment(tmp_path))
        try:
            until = time.monotonic() + PATIENCE
            while b"answer at" not in errors.read_bytes() and time.monotonic() < until:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    assert errors.read_text().count("\n") == 1, "nothing more is said"

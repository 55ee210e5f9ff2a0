"""`athena verify` on a real server, by the command that users run: the report names what this server really does.

The model writes random values, so its rates of behaviour say nothing. What the server itself does is the same in every run: it
keeps to its three APIs and to the schemas, ignores a forced name, ignores `none` in its Messages API, takes a `top_p` of
7.5, and leaks calls where it is told not to parse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from athena.shells.cli import cli
from athena.verify.cases import shipped_cases
from athena.verify.runs import VerifyTrial, read_run
from servers.llama_server import USER, Family, LlamaServer
from servers.test_gateway import grammar_behind

pytestmark = pytest.mark.servers

NAME = "Qwen-Qwen3-0.6B"
DIALECTS = ("openai_chat", "openai_responses", "anthropic_messages")
SOUND = ("answered", "complete", "usage", "form", "ids", "streams_alike", "valid_json", "known_names", "schema", "no_leak")


def report(server: LlamaServer, place: Path, dialect: str) -> tuple[str, dict[str, Any], list[VerifyTrial]]:
    """What the command shows, its report as JSON, and every answer. The HTML page must name the failed metrics too."""
    arguments = ["verify", "--base-url", f"http://127.0.0.1:{server.port}/v1", "--dialect", dialect, "--model", NAME, "--yes",
                 "--concurrency", "1", "--budget", "120", "--run", str(place / "run.jsonl"), "--no-record",
                 "--json", str(place / "out.json"), "--html", str(place / "out.html")]  # fmt: skip
    environment = {"ATHENA_STATE_DIR": str(place / "state"), "HOME": str(place)}
    result = CliRunner().invoke(cli, arguments, env=environment, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    print(result.output)
    value: dict[str, Any] = json.loads((place / "out.json").read_text(encoding="utf-8"))
    page = (place / "out.html").read_text(encoding="utf-8")
    assert all(metric["name"] in page for metric in value["metrics"])
    return result.output, value, list(read_run((place / "run.jsonl").read_bytes()).trials)


def marks(trials: list[VerifyTrial], case: str, metric: str) -> set[bool | None]:
    """What was said of the upstream's answers to a case, streamed and whole."""
    assert {trial.mode for trial in trials if trial.case == case} == {"stream", "whole"}
    return {trial.raw.marks.get(metric) for trial in trials if trial.case == case}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_server_that_parses_is_named_for_what_it_ignores(
    dialect: str, family: Callable[[str], Family], tmp_path: Path
) -> None:
    with family(NAME).served() as server:
        shown, value, trials = report(server, tmp_path, dialect)
    rates = {metric["name"]: metric["raw"]["rate"] for metric in value["metrics"]}
    assert {name: rates[name] for name in SOUND} == dict.fromkeys(SOUND, 1.0)
    assert value["batteries"]["engineering"] == "failed"
    # The values of the forced calls are random and no matter of the server's: they do not decide this.
    assert next(metric["verdict"] for metric in value["metrics"] if metric["name"] == "tool_choice") == "failed"
    assert "tool_choice" in shown
    assert marks(trials, "choice-named", "tool_choice") == {False}
    assert marks(trials, "choice-none", "tool_choice") == {dialect != "anthropic_messages"}
    assert marks(trials, "wire-bad-request", "error_form") == {False}
    # A client of Athena never takes the wrong call for the one that it forced.
    broken = [trial for trial in trials if trial.raw.marks.get("tool_choice") is False and trial.case.startswith("choice")]
    assert broken
    assert all(trial.through.classes == ("error:upstream",) and not trial.through.calls for trial in broken)


def test_a_server_that_does_not_parse_is_named_for_what_it_leaks(family: Callable[[str], Family], tmp_path: Path) -> None:
    made = family(NAME)
    declared = {tool["function"]["name"]: tool for case in shipped_cases() for tool in case.body.get("tools", ())}
    with made.served() as server:
        body = {"messages": [USER], "tools": [*declared.values()], "tool_choice": "required", "verbose": True}
        said = server.post("/v1/chat/completions", body)["__verbose"]["generation_settings"]
    grammar = grammar_behind(said["generation_prompt"], said["grammar"])
    assert grammar is not None
    file = tmp_path / "calls.gbnf"
    file.write_text(grammar, encoding="utf-8")
    with made.served("--skip-chat-parsing", "--grammar-file", str(file)) as server:
        _, value, trials = report(server, tmp_path, "openai_chat")
    metrics = {metric["name"]: metric for metric in value["metrics"]}
    assert set(value["leaked_formats"]) == {"hermes"}
    assert metrics["no_leak"]["raw"]["rate"] < 1.0
    assert metrics["no_leak"]["through"]["rate"] == 1.0
    assert any(trial.through.calls and not trial.raw.calls for trial in trials)

"""Frameworks, as their users run them, on models that leak their calls: they see native tool calls, streamed and whole.

Not part of the normal run: `./dev frameworks` installs the frameworks into `.frameworks` and runs this. Every door of
`examples/frameworks` is a process of its own, in the environment of its framework, against an upstream on a real socket.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from athena.shells.agent_run import started_gateway
from athena.shells.temporary_gateway import Wish
from support.athena_process import environment
from support.leaking_upstream import ANSWER, CITY, FORMS, LeakingUpstream

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
INSTALLED = ROOT / ".frameworks"
_PATIENCE = 120


class Door(msgspec.Struct, frozen=True):
    """How to run one example, and what it asks."""

    environment: str
    """The directory below `.frameworks` that holds its framework."""
    apis: tuple[str, ...]
    """Every one is asked twice: whole and streamed."""


DOORS: dict[str, Door] = {
    "langchain_openai_transport.py": Door("frameworks", ("chat", "responses")),
    "langchain_anthropic_gateway.py": Door("frameworks", ("messages",)),
    "pydantic_ai_transport.py": Door("frameworks", ("chat", "responses", "messages")),
    "openai_agents_transport.py": Door("frameworks", ("chat", "responses")),
    "llm_gateway.py": Door("frameworks", ("chat",)),
    "instructor_transport.py": Door("frameworks-instructor", ("chat",)),
    "litellm_gateway.py": Door("frameworks-litellm", ("openai", "anthropic")),
    "vercel_ai_gateway.mjs": Door("node", ("chat", "messages")),
}
LOOPS = [name for name in DOORS if not name.startswith("instructor")]
"""instructor wants one typed answer and no loop."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[LeakingUpstream]:
    """The models."""
    with LeakingUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(upstream: LeakingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in a process of its own, for the doors that go through one."""
    with started_gateway(Wish(flags={"base_url": upstream.url}), tmp_path_factory.mktemp("gateway") / "log") as up:
        yield up.url


def run(name: str, form: str, upstream: LeakingUpstream, gateway: str, directory: Path) -> dict[str, list[str]]:
    """What an example printed, by label."""
    door = DOORS[name]
    command = [str(INSTALLED / door.environment / "bin" / "python"), "-P", str(EXAMPLES / name)]
    if door.environment == "node":
        # Node looks for packages beside the program and above it.
        program = shutil.copy(EXAMPLES / name, directory)
        (directory / "node_modules").symlink_to(INSTALLED / "node" / "node_modules")
        command = ["node", str(program)]
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment(directory, ATHENA_BASE_URL=upstream.url, ATHENA_MODEL=FORMS[form], GATEWAY_URL=gateway),
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    print(done.stdout, done.stderr, file=sys.stderr)
    assert done.returncode == 0, done.stderr
    printed: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        label, _, said = line.partition(": ")
        printed.setdefault(label, []).append(said)
    return printed


def labels(name: str) -> list[str]:
    return [f"{api} {way}" for api in DOORS[name].apis for way in ("whole", "streamed")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_sees_native_calls(name: str, form: str, upstream: LeakingUpstream, gateway: str, tmp_path: Path) -> None:
    before = len(upstream.turns)
    printed = run(name, form, upstream, gateway, tmp_path)
    assert list(printed) == labels(name)
    for said in printed.values():
        called, answer = said
        assert re.fullmatch(rf"""called get_weather \{{['"]city['"]: ?['"]{CITY}['"]\}}""", called)
        assert answer == f"answer {ANSWER}sunny, 21 °C in {CITY}"
    turns = upstream.turns[before:]
    assert [turn.stream for turn in turns] == [label.endswith("streamed") for label in labels(name) for _ in range(2)]
    for first, second in zip(turns[::2], turns[1::2], strict=True):
        assert (first.model, first.tools, first.calls) == (FORMS[form], ("get_weather",), ())
        ((call_id, called_name, arguments),) = second.calls
        assert (called_name, json.loads(arguments)) == ("get_weather", {"city": CITY})
        assert second.results == ((call_id, f"sunny, 21 °C in {CITY}"),)


@pytest.mark.parametrize("form", FORMS)
def test_instructor_reads_its_type(form: str, upstream: LeakingUpstream, gateway: str, tmp_path: Path) -> None:
    before = len(upstream.turns)
    printed = run("instructor_transport.py", form, upstream, gateway, tmp_path)
    said = [f"answer WeatherQuestion(city='{CITY}')"]
    assert printed == dict.fromkeys(labels("instructor_transport.py"), said)
    assert [turn.stream for turn in upstream.turns[before:]] == [False, True], "no second try was needed"


def test_every_door_is_tried() -> None:
    assert DOORS.keys() == {path.name for path in EXAMPLES.iterdir() if path.is_file()}

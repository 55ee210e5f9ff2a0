"""A clean machine with nothing but Python: each of the four starts takes at most two commands, the first of which installs.

The wheel is built from this checkout and installed into an environment of its own. Its run-time packages come from the
environment of the tests, by a path file, so that no registry is needed; nothing else of that environment is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

import athena
from support.athena_process import environment
from support.patience import PATIENCE
from support.scripted_agent_upstream import FORMS, ScriptedAgentUpstream

ROOT = Path(__file__).parents[2]
DEMO = ("kimi_k2", "qwen_xml", "hermes", "deepseek_v31", "pythonic")
CALL = 'tool_use get_weather {"city":"Tokyo","days":3}'
SDK_PROGRAM = """
import httpx2, openai
from athena.transport import Transport

transport = Transport(base_url=BASE, model="moonshotai/kimi-k2-0905", api_key="none")
tools = [{"type": "function", "function": {"name": "read_file", "parameters":
    {"type": "object", "properties": {"path": {"type": "string"}}}}}]
with openai.OpenAI(http_client=httpx2.Client(transport=transport), base_url="http://athena/v1", api_key="none") as client:
    answer = client.chat.completions.create(
        model="kimi", tools=tools, messages=[{"role": "user", "content": "What is in /home/me/secret.txt?"}])
    (call,) = answer.choices[0].message.tool_calls
    print(call.function.name, call.function.arguments)
"""
LOG = [
    {"id": 1, "text": '<tool_call>{"name": "get_time", "arguments": {"tz": "UTC"}}</tool_call>'},
    {"id": 2, "model": "moonshotai/kimi-k2", "text": "Nothing to do."},
]


class Machine:
    """A home with an environment in it, and how many commands were run there."""

    def __init__(self, home: Path, wheel: Path) -> None:
        self.home = home
        self.wheel = wheel
        self.bin = home / "venv" / "bin"
        self.commands = 0
        home.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")], check=True, timeout=PATIENCE)
        (packages,) = (home / "venv").glob("lib/python3.*/site-packages")
        # A path in a path file is added as it is: the checkout, which is linked into the tests' environment, stays out.
        (packages / "offline.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")) + "\n")

    def install(self) -> None:
        """`pip install athena-gateway`, from the wheel."""
        self.commands += 1
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "-q", "--no-deps", "--no-index"]
        # Modules are compiled when they are first used: that is a part of them.
        subprocess.run([*pip, "--no-compile", "--disable-pip-version-check", str(self.wheel)], check=True, timeout=PATIENCE)

    def run(self, program: str, *arguments: str, code: int = 0, **variables: str) -> str:
        """A command; what it prints."""
        self.commands += 1
        kept = {**environment(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}", **variables}
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            capture_output=True,
            text=True,
            cwd=self.home,
            env=kept,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy: building leaves nothing behind in it."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("src", "requirements"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*build, "-w", str(dist), str(source)], check=True, timeout=PATIENCE)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine") / "home", wheel)
    machine.install()
    return machine


@pytest.fixture
def machine(installed: Machine) -> Machine:
    """The machine right after the first command."""
    installed.commands = 1
    return installed


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedAgentUpstream]:
    with ScriptedAgentUpstream() as running:
        yield running


def test_the_demo_shows_the_repair(machine: Machine) -> None:
    said = machine.run("athena", "demo")
    for name in DEMO:
        assert f"{name}:" in said
    assert said.count(CALL) == len(DEMO)
    assert "athena init" in said
    assert machine.commands <= 2


def test_the_openai_sdk_calls_through_the_transport(machine: Machine, upstream: ScriptedAgentUpstream) -> None:
    """The model writes its call as Kimi's tokens, and the SDK gets a call."""
    (machine.home / "ask.py").write_text(SDK_PROGRAM.replace("BASE", repr(upstream.url)))
    said = machine.run("python", "ask.py")
    assert said.startswith("read_file ")
    assert json.loads(said.partition(" ")[2]) == {"path": "/home/me/secret.txt"}
    assert machine.commands <= 2


def test_a_log_is_parsed(machine: Machine) -> None:
    (machine.home / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in LOG))
    machine.run("athena", "parse", "--jsonl", "log.jsonl", "-o", "calls.jsonl")
    first, second = map(json.loads, (machine.home / "calls.jsonl").read_text().splitlines())
    assert [(call["name"], call["arguments"]) for call in first["tool_calls"]] == [("get_time", '{"tz": "UTC"}')]
    assert (second["tool_calls"], second["text"]) == ([], "Nothing to do.")
    assert machine.commands <= 2


def test_the_script_of_the_distributions_name_runs(machine: Machine) -> None:
    """`uvx athena-gateway` and `pipx run athena-gateway` run the script of that name."""
    assert machine.run("athena-gateway", "version") == f"athena {athena.__version__}\n"


@pytest.mark.agents
def test_claude_code_runs_on_a_model_of_ones_own(machine: Machine, upstream: ScriptedAgentUpstream) -> None:
    """One command after the installation: the agent reads a file through a call that its model leaked as text."""
    programs = ROOT / ".agents" / "node_modules" / ".bin"
    word = "SECRET-0123456789ab"
    (machine.home / "secret.txt").write_text(word)
    said = machine.run(
        "athena", "code", "claude", "--base-url", upstream.url, "--model", FORMS["kimi-reasoning"], "--", "-p",
        f"Read {machine.home}/secret.txt and tell me the word in it.", "--allowedTools", "Read",
        PATH=f"{machine.bin}:{programs}:{os.environ['PATH']}",
    )  # fmt: skip
    assert word in said
    assert machine.commands <= 2


# -- what is in the package ------------------------------------------------------------------------------------------------


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(about).decode())
        (bill,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        sbom: dict[str, Any] = json.loads(archive.read(bill))
    assert fields["Version"] == athena.__version__
    classifiers = fields.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= set(classifiers)
    assert sbom["bomFormat"] == "CycloneDX"
    assert sbom["metadata"]["component"]["version"] == athena.__version__
    named = {part["name"] for part in sbom["components"]}
    wanted = [
        re.split(r"[^A-Za-z0-9_.-]", text)[0].lower() for text in fields.get_all("Requires-Dist") or () if "extra" not in text
    ]
    assert set(wanted) <= named
    assert len(named) <= 15


def test_the_bill_of_materials_is_current() -> None:
    generator = ROOT / "requirements" / "generate_sbom.py"
    done = subprocess.run([sys.executable, str(generator), "--check"], timeout=PATIENCE, check=False)
    assert done.returncode == 0, "run python requirements/generate_sbom.py"

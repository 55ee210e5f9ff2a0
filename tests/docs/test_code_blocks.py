"""Every code block of every page runs, or something that exists vouches for it; a block of another kind fails."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import athena
from athena.formats import all_formats
from athena.shells.config import Sources, load
from athena.shells.demo_server import DemoServer
from learning.invented import INVENTED
from support import shell_lines
from support.athena_process import environment, serving
from support.code_blocks import ROOT, CodeBlock, blocks_of, code_blocks, indented_blocks, pages
from support.patience import PATIENCE

BLOCKS = [block for block in code_blocks() if not block.included]
INCLUDED = [block for block in code_blocks() if block.included]
LANGUAGES = {"python", "sh", "yaml", "json", "toml", "text", "console"}
GATEWAY, UPSTREAM = "127.0.0.1:12377", "127.0.0.1:8000"
"""The addresses pages use; the tests put a real gateway and the demo upstream in their place."""
LEAKED_ANSWER = (
    "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>'
)
COMMAND_LOOKS = re.compile(r"^\s*(\$ |athena |\./dev |curl |pip |import |from \w+ import |export )", re.M)


def of(*languages: str) -> list[Any]:
    return [pytest.param(block, id=block.place) for block in BLOCKS if block.language in languages]


class Servers:
    """What the pages' addresses stand for."""

    def __init__(self, gateway: str, upstream: str) -> None:
        self.gateway = gateway.removeprefix("http://")
        self.upstream = upstream.removeprefix("http://").removesuffix("/v1")

    def put_into(self, code: str) -> str:
        return code.replace(GATEWAY, self.gateway).replace(UPSTREAM, self.upstream)

    def take_from(self, text: str) -> str:
        return text.replace(self.gateway, GATEWAY).replace(self.upstream, UPSTREAM)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    loop = asyncio.new_event_loop()
    demo = DemoServer(pause=0.0)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(demo.start(), loop).result(PATIENCE)
    with serving(tmp_path_factory.mktemp("gateway")) as gateway:
        yield Servers(gateway.url, demo.url)
    asyncio.run_coroutine_threadsafe(demo.close(), loop).result(PATIENCE)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)
    loop.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that pages speak of, as home and current directory."""
    (tmp_path / "answer.txt").write_text(LEAKED_ANSWER)
    records = ({"id": number, "text": LEAKED_ANSWER} for number in range(3))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write_formats(tmp_path)
    for name in list(os.environ):
        if name.startswith(("ATHENA_", "OPENROUTER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_formats(folder: Path) -> None:
    """A format file and chat templates, where pages have them."""
    _, learnt = INVENTED["control_tokens"]
    for name, text in {
        "chat_template.jinja": INVENTED["control_tokens"].template,
        "checkpoint/chat_template.jinja": INVENTED["control_tokens"].template,
        "formats/acme.toml": learnt.to_toml(),
        "models/other/chat_template.jinja": INVENTED["tags"].template,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_every_block_has_a_language_that_is_run() -> None:
    assert [block.place for block in BLOCKS if block.language not in LANGUAGES] == []


def test_no_block_hides_behind_its_indentation() -> None:
    """Fenced blocks name their language and are run; indented ones have no language."""
    hidden = [f"{page.name}:{line}" for page in pages() for line in indented_blocks(page.read_text("utf-8"))]
    assert hidden == []


def printed_by(code: str) -> list[str]:
    """What a block says it prints: its lines that are comments and nothing else."""
    return [line[2:] for line in code.splitlines() if line.startswith("# ")]


def program_of(block: CodeBlock) -> str:
    """The block, behind those it continues."""
    if not block.continues:
        return block.code
    earlier = [one for one in BLOCKS if one.page == block.page and one.language == "python" and one.line < block.line]
    assert earlier, f"{block.place} continues nothing"
    return program_of(earlier[-1]) + block.code


@pytest.mark.parametrize("block", of("python"))
def test_python_prints_what_it_says(block: CodeBlock, servers: Servers, place: Path) -> None:
    program = program_of(block)
    printed = io.StringIO()
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(printed):
        exec(compile(servers.put_into(program), block.place, "exec"), names)
    for value in names.values():
        # The end of a program closes its clients; here the process goes on.
        if hasattr(value, "close") and type(value).__module__.startswith(("anthropic", "google", "httpx", "openai")):
            value.close()
    assert servers.take_from(printed.getvalue()).splitlines() == printed_by(program)


@pytest.mark.parametrize("block", INCLUDED, ids=lambda block: block.included)
def test_included_programs_are_run_by_a_test_of_their_own(block: CodeBlock) -> None:
    assert (ROOT / block.included).is_file()
    folders = (ROOT / "tests" / "examples", ROOT / "tests" / "frameworks")
    tests = [ROOT / "tests" / "docs" / "test_deployment.py", *(test for folder in folders for test in folder.glob("test_*.py"))]
    name = Path(block.included).name
    assert any(f'"{name}"' in test.read_text("utf-8") for test in tests), f"no test runs {name}"


@pytest.mark.parametrize("block", of("sh"))
def test_shell_commands_run_or_are_vouched_for(block: CodeBlock, servers: Servers, place: Path) -> None:
    found = shell_lines.commands(block.code)
    assert found, "an empty block"
    if all(shell_lines.is_runnable(words) for words in found):
        ran = run_script(servers.put_into(block.code), place)
        assert ran.returncode == 0, ran.stderr
        expected = printed_by(block.code)
        if expected:
            assert servers.take_from(ran.stdout).splitlines() == expected
        return
    exports = dict(word.split("=", 1) for words in found if words[0] == "export" for word in words[1:])
    for words in found:
        if words[0] != "export" and " ".join(words) not in shell_lines.OFFLINE and not shell_lines.is_runnable(words):
            shell_lines.check(words, exports)


def run_script(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    """A real shell, with this environment's `athena` and the documentation's `curl`."""
    programs = place / "programs"
    programs.mkdir()
    curl = programs / "curl"
    curl.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests" / "support" / "small_curl.py"} "$@"\n')
    curl.chmod(0o755)
    (programs / "athena").symlink_to(Path(sys.executable).parent / "athena")
    variables = environment(place)
    variables["PATH"] = f"{programs}:{variables['PATH']}"
    command = ["bash", "-eu", "-o", "pipefail", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, cwd=place, env=variables, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("block", of("yaml"))
def test_yaml_is_a_configuration_without_a_warning(block: CodeBlock, tmp_path: Path) -> None:
    write_formats(tmp_path)
    file = tmp_path / "athena.yml"
    file.write_text(block.code)
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)", block.code), "value")
    variables |= dict.fromkeys(re.findall(r"api_key_env: (\w+)", block.code), "value")
    loaded = load(Sources(config_file=file, directory=tmp_path, home=tmp_path, environment=variables))
    assert [str(problem) for problem in loaded.warnings] == []


@pytest.mark.parametrize("block", of("json"))
def test_json_is_json(block: CodeBlock) -> None:
    json.loads(block.code)


@pytest.mark.parametrize("block", of("toml"))
def test_toml_is_toml(block: CodeBlock) -> None:
    tomllib.loads(block.code)


@pytest.mark.parametrize("block", of("text"))
def test_text_is_a_picture_or_an_output_and_no_program(block: CodeBlock) -> None:
    assert COMMAND_LOOKS.search(block.code) is None, "say what language it is, so that it is run"


@pytest.mark.parametrize("block", of("console"))
def test_examples_in_help_are_commands(block: CodeBlock, place: Path) -> None:
    """The generated page of commands: what their own help gives as an example parses."""
    assert block.page == "docs/command-line.md", "console is the language of generated help"
    _, _, examples = block.code.partition("Examples:\n")
    for line in examples.partition("\n\n")[0].splitlines():
        for words in shell_lines.commands(re.sub(r" {3,}.*", "", line.strip())):
            if words[0] == "athena":
                shell_lines.check_arguments(words[1:])


def test_every_format_shows_a_sample_that_is_read() -> None:
    page = (ROOT / "docs" / "formats.md").read_text("utf-8")
    found: dict[str, str] = {}
    *sections, models = page.split("\n## ")[1:]
    assert models.startswith("Which model writes which format\n")
    for section in sections:
        [sample, *_] = blocks_of(section, "docs/formats.md")
        found[section.split("\n")[0]] = sample.code.rstrip("\n")
    assert list(found) == [known.id for known in all_formats()]
    for format_id, text in found.items():
        words = sorted(set(re.findall(r"[a-z_]+", text)))
        parsed = athena.parse(text, format=format_id, tools=[{"name": word} for word in words])
        assert parsed.calls, format_id
        assert parsed.errors == (), format_id


def test_what_is_not_run_is_still_named_somewhere() -> None:
    """No reason outlives its line."""
    lines = {" ".join(words) for block in BLOCKS if block.language == "sh" for words in shell_lines.commands(block.code)}
    assert [line for line in shell_lines.OFFLINE if line not in lines] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```\nathena serve\n```\n", [""]),
        ("```sh\nathena parse < a.txt | cat\n```\n", ["sh"]),
        ("````text\n```\nnot a fence of its own\n```\n````\n", ["text"]),
    ],
)
def test_blocks_are_found(page: str, words: list[str]) -> None:
    assert [block.language for block in blocks_of(page, "page")] == words


def test_indented_blocks_are_found() -> None:
    page = "A.\n\n    code\n    more\n\n- x\n\n    of the list\n\nB.\n\n```text\n\n    fenced\n```\n\n    code\n"
    assert indented_blocks(page) == [3, 17]


def test_commands_are_told_apart() -> None:
    script = "athena parse \\\n  --jsonl < log.jsonl | cat   # a remark; no command\nexport A='b\nc'\n"
    found = shell_lines.commands(script)
    assert [words[0] for words in found] == ["athena", "cat", "export"]
    assert found[2] == ["export", "A=b\nc"]


@pytest.mark.parametrize("line", ["athena serve --no-such-flag", "athena nothing", "./dev nothing", "rm -rf x", "uvicorn2"])
def test_a_command_nobody_vouches_for_fails(line: str) -> None:
    [words] = shell_lines.commands(line)
    assert not shell_lines.is_runnable(words)
    with pytest.raises(Exception, match="no"):
        shell_lines.check(words, {})

"""Leaks: what a client gets when the model writes its call as text, through athena and through each other gateway.

No speed is measured here. A made-up upstream answers the same question three times: with Hermes tags in the text, with Kimi's
tokens in the text, and with Kimi's tokens in the reasoning. Each gateway runs with its defaults and one OpenAI-compatible
provider; the client is an official SDK, streamed and whole. `--save` keeps the result for docs/comparison.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anthropic
import openai

import athena
from benchmarks.gateway import processes
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.peers import PACKAGES, PEERS, add_install_option, install, installed
from benchmarks.gateway.systems import CLIENT_KEY, Launch, Place, System, system_named

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.scripted_upstream import ScriptedUpstream  # noqa: E402
from support.upstream_speech import chat_stream, chat_whole  # noqa: E402
from support.upstream_talk import Talk  # noqa: E402

SAVED = ROOT / "benchmarks" / "results" / "leaks.json"
ARGUMENTS = {"city": "Paris"}
TOOL = "get_weather"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "What is the weather in Paris?"
_HERMES = f'<tool_call>\n{{"name": "{TOOL}", "arguments": {json.dumps(ARGUMENTS)}}}\n</tool_call>'
_KIMI = (
    f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{TOOL}:0<|tool_call_argument_begin|>"
    f"{json.dumps(ARGUMENTS)}<|tool_call_end|><|tool_calls_section_end|>"
)
LEAKS = {
    "qwen2.5-72b-instruct": ("Hermes tags in the text", "content", f"Let me look. {_HERMES}"),
    "kimi-k2-0905": ("Kimi tokens in the text", "content", f"Let me look. {_KIMI}"),
    "kimi-k2-thinking": ("Kimi tokens in the reasoning", "reasoning_content", f"I need the weather. {_KIMI}"),
}
"""By model: what it is called in the table, the field of the message that holds it, and what the model writes."""
MARKS = ("<tool_call>", "<|tool_call_begin|>")
SYSTEMS = ("athena-msg", "athena-chat", *(name for name in PEERS if name != "portkey-ant"))
VLLM = {"qwen2.5-72b-instruct": "hermes", "kimi-k2-0905": "kimi_k2"}
"""The parsers of vLLM that its documentation names for these models. They read the text, not the reasoning."""
_PATIENCE_S = 120


class _Upstream(ScriptedUpstream):
    """Writes its calls as text, in pieces of seven characters, and says that it has finished."""

    base_path = "/v1"

    async def answer(self, talk: Talk) -> None:
        model = talk.body["model"]
        _, field, text = LEAKS[model]
        pieces = [{field: text[start : start + 7]} for start in range(0, len(text), 7)]
        whole = chat_whole({"content": None, field: text}, "stop", model=model)
        await talk.say(chat_stream(pieces, "stop", model=model), whole)


def main(arguments: list[str]) -> int:
    """Ask each, print, save."""
    parser = argparse.ArgumentParser(prog="./dev bench leaks", description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma separated; default: %(default)s")
    parser.add_argument("--save", action="store_true", help=f"write the result to {SAVED.relative_to(ROOT)}")
    add_install_option(parser)
    options = parser.parse_args(arguments)
    names = [name for name in options.systems.split(",") if name]
    if options.install:
        install([name for name in names if name in PEERS])
    missing = [name for name in names if name in PEERS and not installed(name)]
    if missing:
        print(f"bench: not installed: {', '.join(missing)} (--install puts them into .peers)", file=sys.stderr)
    rows = []
    with _Upstream() as upstream:
        for name in names:
            if name not in missing:
                rows += list(_asked(system_named(name), upstream.url.removesuffix("/v1")))
    rows += _vllm_rows()
    for row in rows:
        print(f"  {row['system']:<14}{row['version']:<10}{row['api']:<10}{row['mode']:<8}{row['leak']:<30}{row['got']}")
    if options.save:
        _save(rows)
    return 0


def _save(rows: list[dict[str, str]]) -> None:
    """In place of the earlier rows of the same systems."""
    earlier = json.loads(SAVED.read_text("utf-8"))["rows"] if SAVED.exists() else []
    asked = {row["system"] for row in rows}
    kept = [row for row in earlier if row["system"] not in asked]
    SAVED.write_text(json.dumps({"date": f"{datetime.now(UTC):%Y-%m-%d}", "rows": kept + rows}, indent=1) + "\n", "utf-8")


def _asked(system: System, upstream: str) -> Iterator[dict[str, str]]:
    package = PACKAGES.get(system.name.partition("-")[0])
    version = (
        athena.__version__
        if package is None
        else package.requirement.rpartition("=" if "==" in package.requirement else "@")[2]
    )
    with _running(system, upstream) as (url, launch):
        for model, (leak, _, _) in LEAKS.items():
            for mode in ("streamed", "whole"):
                ask = _ask_messages if system.speaks == "messages" else _ask_chat
                try:
                    got = ask(url, launch, launch.model_prefix + model, streamed=mode == "streamed")
                except (anthropic.AnthropicError, openai.OpenAIError) as error:
                    got = f"error: {type(error).__name__}: {error}"[:160]
                yield {
                    "system": system.name.partition("-")[0],
                    "version": version,
                    "api": system.speaks,
                    "mode": mode,
                    "leak": leak,
                    "got": got,
                }


@contextmanager
def _running(system: System, upstream: str) -> Iterator[tuple[str, Launch]]:
    """The gateway, once it answers HTTP; it ends with the block."""
    assert system.launch is not None
    with tempfile.TemporaryDirectory(prefix="athena-leaks-") as folder:
        place = Place(processes.free_port(), upstream, Path(folder), tuple(LEAKS))
        launch = system.launch(place)
        log = Path(folder) / "log"
        process = processes.start(
            launch.command, cores=os.sched_getaffinity(0), log=log, folder=Path(folder), environment=launch.environment
        )
        try:
            _wait(f"http://127.0.0.1:{place.port}/", process, log)
            yield f"http://127.0.0.1:{place.port}", launch
        finally:
            processes.stop(process)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise CannotMeasure(f"it does not answer: {log.read_text('utf-8', 'replace')[-800:]}") from None
            time.sleep(0.2)


def _headers(launch: Launch) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in launch.headers)


def _ask_messages(url: str, launch: Launch, model: str, *, streamed: bool) -> str:
    key = _headers(launch).get("Authorization", f"Bearer {CLIENT_KEY}").removeprefix("Bearer ")
    with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=60, default_headers=_headers(launch)) as client:
        asked: Any = {
            "model": model,
            "max_tokens": 500,
            "messages": [{"role": "user", "content": QUESTION}],
            "tools": [{"name": TOOL, "description": "The weather.", "input_schema": SCHEMA}],
        }
        if streamed:
            with client.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**asked)
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    text = "".join(block.text for block in message.content if block.type == "text")
    thinking = "".join(block.thinking for block in message.content if block.type == "thinking")
    return _verdict(calls, text, thinking, message.stop_reason, "tool_use")


def _ask_chat(url: str, launch: Launch, model: str, *, streamed: bool) -> str:
    headers = _headers(launch)
    key = headers.get("Authorization", f"Bearer {CLIENT_KEY}").removeprefix("Bearer ")
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60, default_headers=headers) as client:
        asked: Any = {
            "model": model,
            "messages": [{"role": "user", "content": QUESTION}],
            "tools": [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}],
        }
        if streamed:
            with client.chat.completions.stream(**asked) as stream:
                choice: Any = stream.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**asked).choices[0]
    found = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]
    reasoning = "".join(str((choice.message.model_extra or {}).get(name) or "") for name in ("reasoning_content", "reasoning"))
    return _verdict(found, choice.message.content or "", reasoning, choice.finish_reason, "tool_calls")


def _verdict(calls: list[tuple[str, Any]], text: str, thinking: str, stop: str | None, expected: str) -> str:
    """One of: the call; markup in the text; markup in the reasoning; nothing."""
    if any(mark in text for mark in MARKS):
        return "markup in the text"
    if any(mark in thinking for mark in MARKS):
        return "markup in the reasoning"
    if calls == [(TOOL, ARGUMENTS)]:
        return "the call" if stop == expected else f"the call, but the answer ends with {stop}"
    return "another call" if calls else "nothing: the markup is gone and there is no call"


def _vllm_rows() -> list[dict[str, str]]:
    """vLLM's own parsers, where ATHENA_PEER_PYTHON names a Python that has them."""
    python = os.environ.get("ATHENA_PEER_PYTHON", "")
    if not python:
        print("bench: vLLM's parsers are left out: ATHENA_PEER_PYTHON names no Python that has vllm", file=sys.stderr)
        return []
    from benchmarks.peer_parsers import pieces_of

    tool = {"name": TOOL, "description": "The weather.", "parameters": SCHEMA}
    rows = []
    for model in VLLM:
        given = {"tools": [tool], "texts": dict.fromkeys(VLLM.values(), pieces_of(LEAKS[model][2]))}
        command = [python, str(Path(__file__).with_name("peer_worker.py")), "vllm"]
        ran = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False, timeout=600)
        lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        if len(lines) <= len(VLLM):
            print(f"bench: vLLM's parsers cannot be run: {ran.stderr[-300:]}", file=sys.stderr)
            return []
        rows += [
            {
                "system": f"vllm, parser {line['parser']}",
                "version": str(lines[0]["version"]),
                "api": "parser",
                "mode": "streamed",
                "leak": LEAKS[model][0],
                "got": _parser_verdict(line),
            }
            for line in lines[1:]
        ]
    return rows


def _parser_verdict(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"error: {line['error']}"
    calls = [(name, json.loads(arguments)) for name, arguments in line["calls"]]
    return _verdict(calls, "" if calls else MARKS[0], "", "", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

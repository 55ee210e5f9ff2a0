"""Our parsers beside those of vLLM and SGLang: the same texts in the same pieces, CPU time.

The peers are not installed here; name the Python of an environment that has them in ATHENA_PEER_PYTHON (`pip install vllm`, or
`pip install --no-deps vllm` and what its parsers import). Pieces are what a server sees: a marker is one piece, everything
else four characters.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from athena.formats import get_format
from athena.formats.machine.engine import TextParser
from athena.model.events import ToolCallComplete
from benchmarks.formats import CALL, PROSE, TOOLS

PEERS = {
    "vllm": {
        "hermes": "hermes", "kimi_k2": "kimi_k2", "deepseek_v3": "deepseek_v3", "deepseek_v31": "deepseek_v31",
        "qwen_xml": "qwen3_coder", "glm_xml": "glm45", "llama3_json": "llama3_json", "mistral_json": "mistral",
        "pythonic": "pythonic", "minimax_m2": "minimax_m2", "granite3": "granite", "lfm2": "lfm2", "olmo3": "olmo3",
        "xlam": "xlam", "phi4_mini": "phi4_mini_json", "seed_oss": "seed_oss", "step3": "step3", "gemma4": "gemma4",
    },
    "sglang": {
        "hermes": "qwen25", "kimi_k2": "kimi_k2", "deepseek_v3": "deepseekv3", "deepseek_v31": "deepseekv31",
        "qwen_xml": "qwen3_coder", "glm_xml": "glm45", "llama3_json": "llama3", "mistral_json": "mistral",
        "pythonic": "pythonic", "minimax_m2": "minimax-m2", "lfm2": "lfm2", "step3": "step3", "gemma4": "gemma4",
    },
}  # fmt: skip
"""Our formats and the names of the peers' parsers for them."""

_MARKER = re.compile(r"<[|｜][^<>]{1,60}[|｜]?>|<tool_call\|>|</?(?:seed:|minimax:)?tool_call>|\[TOOL_CALLS\]|\[ARGS\]")
_SIZE = 4


def pieces_of(text: str) -> list[str]:
    """Markers whole, the rest four characters at a time."""
    pieces: list[str] = []
    at = 0
    for found in (*_MARKER.finditer(text), None):
        stop = found.start() if found is not None else len(text)
        pieces.extend(text[start : min(start + _SIZE, stop)] for start in range(at, stop, _SIZE))
        if found is not None:
            pieces.append(found.group())
            at = found.end()
    return pieces


def main() -> None:
    """Print a table per peer."""
    python = os.environ.get("ATHENA_PEER_PYTHON", "")
    if not python:
        print("  peers not compared: ATHENA_PEER_PYTHON names no Python that has vllm or sglang installed")
        return
    for peer, names in PEERS.items():
        _compare(python, peer, names)


def _compare(python: str, peer: str, names: dict[str, str]) -> None:
    texts = {ours: pieces_of(_prose(ours) + get_format(ours).render_calls([CALL])) for ours in names}
    given = {
        "tools": [{"name": tool.name, "description": "", "parameters": tool.schema} for tool in TOOLS],
        "texts": {names[ours]: chunks for ours, chunks in texts.items()},
    }
    worker = Path(__file__).with_name("peer_worker.py")
    ran = subprocess.run([python, str(worker), peer], input=json.dumps(given), capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(f"  {peer}: not installed in that environment ({_last_line(ran.stderr)})")
        return
    print(f"  {peer} {lines[0]['version']}: microseconds of CPU per piece")
    print(f"  {'format':<16}{'pieces':>8}{'ours':>10}{'theirs':>10}{'ratio':>8}  their call")
    found = {line["parser"]: line for line in lines[1:]}
    for ours, theirs in names.items():
        _row(ours, texts[ours], found.get(theirs, {"error": _last_line(ran.stderr)}))


def _prose(format_id: str) -> str:
    """Text before the call, where the format may have some."""
    return "" if format_id in ("llama3_json", "pythonic", "xlam", "olmo3") else PROSE


def _row(name: str, chunks: list[str], theirs: dict[str, Any]) -> None:
    seconds, calls = min(_read(name, chunks) for _ in range(5))
    assert calls == [CALL.name], f"{name}: {calls}"
    ours = seconds / len(chunks) * 1e6
    if "error" in theirs:
        print(f"  {name:<16}{len(chunks):>8}{ours:>10.2f}{'-':>10}{'-':>8}  {theirs['error']}")
        return
    peer = theirs["seconds"] / len(chunks) * 1e6
    print(f"  {name:<16}{len(chunks):>8}{ours:>10.2f}{peer:>10.2f}{peer / ours:>8.1f}  {_verdict(theirs['calls'])}")


def _read(name: str, chunks: list[str]) -> tuple[float, list[str]]:
    began = time.process_time()
    parser = TextParser(name, tools=TOOLS)
    events = [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()
    seconds = time.process_time() - began
    return seconds, [event.name for event in events if isinstance(event, ToolCallComplete)]


def _verdict(calls: list[list[str]]) -> str:
    try:
        same = [(name, json.loads(arguments)) for name, arguments in calls] == [(CALL.name, json.loads(CALL.arguments))]
    except ValueError:
        return "broken arguments"
    return "the same" if same else f"other: {len(calls)} call(s)"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "no output"


if __name__ == "__main__":
    main()

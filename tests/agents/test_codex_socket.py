"""Codex with its own provider, led to the gateway by `openai_base_url`: WebSocket, warm-up, continuation, remote compaction.

Run by `./dev agents`, as the other agents are.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.gateway_process import running_gateway
from support.long_session_upstream import LongSessionUpstream
from support.session_upstream import QUESTION

pytestmark = pytest.mark.agents
_PROGRAM = Path(__file__).parents[2] / ".agents" / "node_modules" / ".bin" / "codex"
_PATIENCE = 300
_READINGS = 50
_COMPACTS_AT = 14_000
DIALECTS = ("openai_chat", "anthropic_messages", "openai_responses", "gemini")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fifty_turns_over_one_socket_with_compactions(dialect: str, tmp_path: Path) -> None:
    word = f"SECRET-{secrets.token_hex(6)}"
    place, home = tmp_path / "work", tmp_path / "home"
    place.mkdir()
    (home / ".codex").mkdir(parents=True)
    (place / "file.txt").write_text(f"{word}\n" + "nothing else here\n" * 100)
    with LongSessionUpstream(_READINGS) as upstream:
        base = upstream.url if dialect == "gemini" else f"{upstream.url}/v1"
        value: dict[str, Any] = {
            "upstreams": {"one": {"base_url": base, "dialect": dialect, "api_key": "sk-upstream"}},
            "models": [{"match": "*", "use": "one/m"}],
            "envelope_key": "test",
        }
        with running_gateway(value, tmp_path) as gateway:
            (home / ".codex" / "config.toml").write_text(
                f'openai_base_url = "{gateway.url}/v1"\nmodel = "athena-model"\nmodel_context_window = 20000\n'
                f"model_auto_compact_token_limit = {_COMPACTS_AT}\n[features]\nplugins = false\n"
            )
            done = subprocess.run(
                [str(_PROGRAM), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                 QUESTION.format(path=place / "file.txt")],
                cwd=place,
                env={"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_API_KEY": "sk-client"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )  # fmt: skip
            lines = [line for line in gateway.logs.lines if line.startswith("athena.request")]
    assert word in done.stdout, done.stderr[-3000:]
    assert not upstream.faults
    assert upstream.read == _READINGS
    assert upstream.summaries >= 1
    assert max(upstream.told) < 2 * _COMPACTS_AT
    assert not [line for line in lines if "'outcome': 'error'" in line]
    plain = [line for line in lines if "'status': 101" not in line and "/compact" not in line]
    assert len(lines) - len(plain) - sum("/compact" in line for line in lines) == 1, "more than one connection was made"
    # One request of the client for each of the upstream's, and the warm-up: nothing was sent twice.
    assert len(upstream.requests) <= len(lines) - 1
    assert json.dumps(upstream.told)

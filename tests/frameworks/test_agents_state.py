"""The OpenAI Agents SDK with the conversation kept by the server: three turns with a tool, over every upstream dialect.

By the last response's id, by a conversation, and by the SDK's own session of the Conversations API; whole and streamed. The
model repeats what it was shown, so a turn that is lost or there twice is seen. `./dev frameworks` runs it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.athena_process import environment
from support.gateway_process import running_gateway
from support.remembering_upstream import UPSTREAMS, RememberingUpstream, config

pytestmark = pytest.mark.frameworks

PYTHON = Path(__file__).parents[2] / ".frameworks" / "frameworks" / "bin" / "python"
PROGRAM = Path(__file__).with_name("agents_state.py")
TOLD = [
    "heard one; spoke 0",
    "heard one | use the tool two | found two; spoke 2",
    "heard one | use the tool two | found two | three; spoke 3",
]


def test_turns_that_the_gateway_keeps(tmp_path: Path) -> None:
    models = [f"{name}/model" for name in UPSTREAMS]
    with RememberingUpstream() as upstream, running_gateway(config(upstream), tmp_path) as gateway:
        done = subprocess.run(
            [str(PYTHON), "-P", str(PROGRAM), gateway.url, *models],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        runs = [json.loads(line) for line in done.stdout.splitlines()]
        assert runs == [
            {"model": model, "way": way, "stream": stream, "told": TOLD}
            for model in models
            for way in ("previous_response", "conversation", "session")
            for stream in (False, True)
        ]
        assert len(upstream.answered) == 4 * len(runs)
        assert not any("previous_response_id" in body or "conversation" in body for body in upstream.answered)

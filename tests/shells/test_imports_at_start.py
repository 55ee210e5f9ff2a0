"""Everything a request can need is imported before the first one comes: a gateway out of descriptors could not import it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from athena.formats import format_names
from support.athena_process import environment
from support.fault_config import DIALECTS, fault_config
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import free_port
from support.patience import PATIENCE

SUPPORT = Path(__file__).parents[1]


def test_no_request_imports_anything(tmp_path: Path) -> None:
    with FaultyUpstream() as upstream:
        config = fault_config(upstream.url, port=0, retries={"attempts": 0})
        config["upstreams"]["secure"] = {"base_url": f"https://localhost:{upstream.port}", "dialect": "openai_chat"}
        config["upstreams"]["nobody"] = {"base_url": f"http://b\u00fccher.invalid:{free_port()}", "dialect": "gemini"}
        for name in ("secure", "nobody"):
            # A server without TLS waits for a request that it understands, and some resolvers take their time.
            config["upstreams"][name]["timeouts"] = {"connect_s": 0.2}
        # Every ninth: building the tables of a format takes far longer than importing it.
        rules = [{"match": f"as-{name}", "use": "chat/text-python", "format": name} for name in format_names()[::9]]
        rules.append({"match": "prompted", "use": "chat/control", "tools": "prompted"})
        rules.append({"match": "refuses-tools", "use": "chat/404"})
        rules += [{"match": f"{name}/*", "use": f"{name}/*"} for name in ("secure", "nobody")]
        config["models"] = [*rules, *config["models"]]
        file = tmp_path / "athena.yml"
        file.write_text(json.dumps(config))
        models = [f"{name}/control" for name in DIALECTS]
        models += ["chat/gzip-sse", "chat/deflate-sse", "chat/500-json", "chat/reset-midstream", "chat/text-in-think"]
        models += [str(rule["match"]) for rule in rules if "*" not in str(rule["match"])]
        models += ["nobody/500", "secure/500", "unknown-model"]
        done = subprocess.run(
            [sys.executable, "-m", "support.import_watch", str(file), *models],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(tmp_path, PYTHONPATH=str(SUPPORT)),
            timeout=5 * PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"imported": [], "problems": []}

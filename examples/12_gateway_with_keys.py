"""A gateway for several people: each has a key, the gateway keeps only hashes, and any HTTP client will do.

`athena config new-key` makes a key and the line for `athena.yml`. The upstream's own key stays with the gateway.

    python examples/12_gateway_with_keys.py
    ATHENA_BASE_URL=http://127.0.0.1:8000/v1 ATHENA_API_KEY=... ATHENA_MODEL=... python examples/12_gateway_with_keys.py
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2
from offline import gateway, upstream

BODY = {
    "model": "athena-demo",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [
        {
            "name": "get_weather",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        }
    ],
}


def new_key(name: str) -> tuple[str, str]:
    """A key for a person, and its hash for the configuration."""
    command = [sys.executable, "-m", "athena", "config", "new-key", "--name", name]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.strip(), re.findall(r"sha256:[0-9a-f]{64}", ran.stderr)[0]


key, key_hash = new_key("laptop")
with tempfile.TemporaryDirectory() as directory, upstream() as url:
    config = Path(directory, "athena.yml")
    config.write_text(f'keys:\n  - {{name: laptop, hash: "{key_hash}"}}\n')
    with gateway("--config", str(config), "--base-url", url) as address:
        print(f"curl {address}/v1/messages -H 'authorization: Bearer {key[:8]}...' -d '{{...}}'")
        for headers in ({}, {"authorization": f"Bearer {key}"}):
            answer = httpx2.post(f"{address}/v1/messages", json=BODY, headers=headers, timeout=60)
            content = answer.json()
            print(answer.status_code, content["error"]["message"] if "error" in content else content["content"][-1])

"""One upstream that remembers and one gateway in front of it, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from athena.shells.config import hash_key
from support.gateway_process import GatewayThread, running_gateway
from support.remembering_upstream import RememberingUpstream, config

KEYS = {"alice": "alices-key-0123456789", "mallory": "mallorys-key-0123456789"}
TOOL: Any = {
    "type": "function",
    "name": "look_up",
    "description": "Look a word up.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    "strict": False,
}


def keys() -> list[dict[str, str]]:
    return [{"name": name, "hash": hash_key(key)} for name, key in KEYS.items()]


@pytest.fixture(scope="module")
def upstream() -> Iterator[RememberingUpstream]:
    with RememberingUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(upstream: RememberingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    with running_gateway(config(upstream, keys=keys()), tmp_path_factory.mktemp("gateway")) as running:
        yield running

"""What is sent where, for addresses that are not of the usual form."""

from __future__ import annotations

from pathlib import Path

import pytest

from athena.model.request import Request
from athena.shells.config import Router
from athena.shells.config.ready import ready_targets
from support.gateway_process import load_config

KEY = "0123456789abcdef"
DATED = "https://r.openai.azure.com/openai/deployments/my-gpt?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("base_url", "dialect", "path", "wanted"),
    [
        (DATED, "openai_chat", "/v1/chat/completions", "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"),
        ("https://r.openai.azure.com/openai/v1", "openai_chat", "/v1/chat/completions", "/openai/v1/chat/completions"),
        (
            "https://r.openai.azure.com/openai/v1?api-version=preview",
            "openai_responses",
            "/v1/responses",
            "/openai/v1/responses?api-version=preview",
        ),
    ],
)
def test_azure(base_url: str, dialect: str, path: str, wanted: str, tmp_path: Path) -> None:
    upstream = {"base_url": base_url, "dialect": dialect, "api_key": KEY}
    config = load_config({"upstreams": {"azure": upstream}, "models": [{"match": "*", "use": "azure/my-gpt"}]}, tmp_path)
    [target] = ready_targets(Router(config), "any")
    assert str(target.origin) == "https://r.openai.azure.com"
    assert target.path(path) == wanted
    headers = dict(target.headers({}, Request(dialect=dialect, model="any", turns=()), {}, None))
    assert headers[b"api-key"] == KEY.encode()
    assert b"authorization" not in headers

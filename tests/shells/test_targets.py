"""What is sent where, for addresses that are not of the usual form."""

from __future__ import annotations

from pathlib import Path

import pytest

from athena.model.request import Request
from athena.shells.config import Router
from athena.shells.config.ready import ready_targets
from support.config_file import load_config

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


@pytest.mark.parametrize(
    ("dialect", "header"),
    [
        ("anthropic_messages", "anthropic-beta"),
        ("openai_chat", "openai-beta"),
        ("openai_responses", "openai-beta"),
        ("openai_responses", "openai-organization"),
        ("openai_chat", "openai-project"),
    ],
)
def test_headers_that_belong_to_the_body_go_home_with_it_and_nowhere_else(dialect: str, header: str, tmp_path: Path) -> None:
    """A field of a beta is refused without the header that announces it."""
    upstream = {"base_url": "https://u.example", "dialect": dialect}
    config = load_config({"upstreams": {"u": upstream}, "models": [{"match": "*", "use": "u"}]}, tmp_path)
    [target] = ready_targets(Router(config), "any")
    given = {header: "tried=v1", "x-own": "secret", "cookie": "secret"}
    for client in ("anthropic_messages", "openai_chat", "openai_responses", "gemini"):
        sent = dict(target.headers({}, Request(dialect=client, model="any", turns=()), given, None))
        assert sent.get(header.encode()) == (b"tried=v1" if client == dialect else None)
        assert b"secret" not in sent.values()

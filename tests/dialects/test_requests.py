"""Requests: home again unchanged, abroad as the official SDK's types allow."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeTarget
from athena.model.request import Request
from athena.prepare import prepare
from athena.profiles import default_profiles
from support.cases import RequestCase, dialect_cases
from support.loopback import decode_http
from support.sdk_types import check_body

CAPTURES = Path(__file__).parent.parent / "recordings" / "requests"
CAPTURED = sorted(path.name for path in CAPTURES.glob("*.json"))


def load(name: str) -> tuple[str, dict[str, Any]]:
    capture = json.loads((CAPTURES / name).read_text(encoding="utf-8"))
    return capture["path"], capture["body"]


def encode(request: Request, dialect: str, model: str | None = None) -> dict[str, Any]:
    """The body as it goes to a plain upstream of that dialect."""
    profile = default_profiles().for_dialect(dialect, model or request.model)
    target = EncodeTarget(model or request.model, profile)
    home, abroad = get_dialect(request.dialect), get_dialect(dialect)
    prepared = prepare(request, target, home, abroad)
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(abroad.encode_request(prepared.request, target).body))
    return body


def test_captures_are_all_here() -> None:
    assert len(CAPTURED) == 36


@pytest.mark.parametrize("name", CAPTURED)
def test_captures_come_home_unchanged(name: str) -> None:
    path, body = load(name)
    kept = copy.deepcopy(body)
    request = decode_http(path, body)
    again = encode(request, request.dialect)
    assert body == kept, "decoding changed its input"
    assert again == body


@pytest.mark.parametrize("dialect", dialect_names())
@pytest.mark.parametrize("name", CAPTURED)
def test_captures_go_abroad(name: str, dialect: str) -> None:
    path, body = load(name)
    request = decode_http(path, body)
    model = {"anthropic_messages": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}.get(dialect, "gpt-4.1")
    sent = encode(request, dialect, model)
    check_body(dialect, sent)


REQUESTS = [
    pytest.param(dialect, case, id=f"{dialect}-{case.name}")
    for dialect in dialect_names()
    for case in dialect_cases(dialect).request
]


@pytest.mark.parametrize(("dialect", "case"), REQUESTS)
def test_requests_come_home_unchanged(dialect: str, case: RequestCase) -> None:
    body = msgspec.json.decode(case.body)
    model = case.model or ("m" if dialect == "gemini" else None)
    codec = get_dialect(dialect)
    request = codec.decode_request(body, model=model, stream=case.stream)
    target = EncodeTarget(request.model, default_profiles().for_dialect(dialect, request.model))
    again = msgspec.json.decode(msgspec.json.encode(codec.encode_request(request, target).body))
    assert again == body

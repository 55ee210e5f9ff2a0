"""Requests on their way to upstreams of each dialect, and clients' requests read, as data: tests/cases/requests."""

from __future__ import annotations

import copy
from typing import Any, get_type_hints

import msgspec
import pytest

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeTarget
from athena.errors import UnsupportedFeature
from athena.model.parts import Text
from athena.model.request import Request, Turn
from support.request_cases import DecodeCase, EncodeCase, Group, request_file
from support.sdk_types import check_body

FIELDS = get_type_hints(Request)
HI = (Turn(role="user", parts=(Text(text="Hi"),)),)
BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "anthropic_messages": {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]},
    "openai_responses": {"model": "m", "input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
"""A request of each dialect that says nothing but "Hi"."""
SAMPLING = ("temperature", "top_p", "top_k")
"""Fields that Anthropic's SDK has no longer, and older versions of its API take."""

GROUPS = [
    pytest.param(dialect, group, id=f"{dialect}-{group.name}")
    for dialect in dialect_names()
    for group in request_file(dialect).group
]


@pytest.mark.parametrize(("dialect", "group"), GROUPS)
def test_requests(dialect: str, group: Group) -> None:
    assert group.encode or group.decode, "a group without cases proves nothing"
    problems = [f"{case}: {found}" for case in group.encode if (found := encode_problem(dialect, group, case))]
    problems += [f"{case}: {found}" for case in group.decode if (found := decode_problem(dialect, group, case))]
    assert not problems, "\n".join(problems)


def encode_problem(dialect: str, group: Group, case: EncodeCase) -> str:
    target = EncodeTarget("upstream", request_file(dialect).profile(case.profile or group.profile), case.strict)
    spoken = None if case.body is None else {**group.body, **case.body}
    try:
        request = said(dialect, {**group.request, **case.request}, spoken)
        kept = copy.deepcopy(request.raw)
        encoded = get_dialect(dialect).encode_request(request, target)
    except UnsupportedFeature as refusal:
        return "" if case.refused == refusal.path else f"refused for {refusal.path}"
    if case.refused:
        return "not refused"
    if request.raw != kept:
        return "encoding changed its input"
    plain = said(dialect, group.request, None if case.body is None else group.body)
    body, base = (as_sent(dialect, one, target) for one in (request, plain))
    if case.body is None and not case.untyped:
        check_body(dialect, {key: value for key, value in body.items() if key not in SAMPLING})
    sent = {key: value for key, value in body.items() if key not in base or base[key] != value}
    if sent != case.sent or base.keys() - body.keys():
        return f"sent {sent}, without {base.keys() - body.keys()}"
    if missing := {key for key, value in case.has.items() if body.get(key) != value}:
        return f"not sent as wanted: {missing}"
    if unwanted := body.keys() & set(case.without):
        return f"sent {unwanted}"
    losses = {loss.path: loss.action for loss in encoded.losses}
    return f"losses {losses}" if losses != case.losses else ""


def said(dialect: str, fields: dict[str, Any], body: dict[str, Any] | None) -> Request:
    """A request of another dialect with these fields, or one of a client of this dialect."""
    if body is not None:
        return get_dialect(dialect).decode_request({**BODIES[dialect], **body}, model="m")
    other = "openai_chat" if dialect == "anthropic_messages" else "anthropic_messages"
    request = Request(dialect=other, model="m", turns=HI)
    return msgspec.structs.replace(request, **{name: msgspec.convert(value, FIELDS[name]) for name, value in fields.items()})


def as_sent(dialect: str, request: Request, target: EncodeTarget) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(get_dialect(dialect).encode_request(request, target).body))
    return body


def decode_problem(dialect: str, group: Group, case: DecodeCase) -> str:
    request = get_dialect(dialect).decode_request({**BODIES[dialect], **group.body, **case.body}, model="m")
    wanted = {name: msgspec.convert(value, FIELDS[name]) for name, value in case.request.items()}
    wanted |= dict.fromkeys(case.absent)
    found = {name: getattr(request, name) for name in wanted}
    return f"read {found}" if found != wanted else ""

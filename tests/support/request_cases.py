"""The data files of `tests/cases/requests`: what of a request goes to an upstream of each dialect, and what comes of its own.

A file is named after its dialect. It names profiles of upstreams, and consists of groups:

    [profiles]
    small = {...}                  fields of a profile

    [[group]]
    name = "tool_choice"
    profile = "small"              of every case that has none of its own
    request = {...}                fields of the request in every case of the group
    body = {...}                   the same of a client's own body
    encode = [                     the request was made in another dialect
        {request = {...}, sent = {...}},
        {request = {...}, sent = {...}, losses = {path = "dropped"}},
        {request = {...}, refused = "path", strict = true},
        {request = {...}, without = ["tool_choice"]},
        {body = {...}, sent = {...}},       a client of the same dialect said this
    ]
    decode = [
        {body = {...}, request = {...}, absent = ["tool_choice"]},
    ]

A case may have its own `profile = {...}` instead of a name. `sent` is exactly what the case adds to the body of a request
that says "Hi" with the group's fields and no others. TOML has no null: "<null>" stands for it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

import msgspec

from athena.model.profile import Profile
from support.cases import CASES


class EncodeCase(msgspec.Struct, forbid_unknown_fields=True):
    """A request on its way to an upstream."""

    request: dict[str, Any] = {}
    body: dict[str, Any] | None = None
    """Fields of the client's own body, where it speaks the upstream's dialect."""
    profile: str | dict[str, Any] = ""
    strict: bool = False
    sent: dict[str, Any] = {}
    has: dict[str, Any] = {}
    """What the whole body must have, though every request to this upstream has it."""
    without: tuple[str, ...] = ()
    """What the whole body must not have."""
    losses: dict[str, str] = {}
    untyped: str = ""
    """Why the body does not fit the type that the official SDK has for it, where it does not."""
    refused: str = ""
    """The field for which the request is refused."""


class DecodeCase(msgspec.Struct, forbid_unknown_fields=True):
    """A client's request read."""

    body: dict[str, Any]
    request: dict[str, Any] = {}
    absent: tuple[str, ...] = ()
    """Fields of the request that have no value."""


class Group(msgspec.Struct, forbid_unknown_fields=True):
    """Cases of one rule."""

    name: str
    profile: str = ""
    request: dict[str, Any] = {}
    body: dict[str, Any] = {}
    encode: tuple[EncodeCase, ...] = ()
    decode: tuple[DecodeCase, ...] = ()
    note: str = ""


class RequestFile(msgspec.Struct, forbid_unknown_fields=True):
    """All cases of one dialect."""

    group: tuple[Group, ...]
    profiles: dict[str, dict[str, Any]] = {}

    def profile(self, given: str | dict[str, Any]) -> Profile:
        return msgspec.convert(self.profiles[given] if given and isinstance(given, str) else given or {}, Profile)


@cache
def request_file(dialect: str) -> RequestFile:
    """The file of one dialect."""
    value = tomllib.loads((CASES / "requests" / f"{dialect}.toml").read_text(encoding="utf-8"))
    return msgspec.convert(_with_nulls(value), RequestFile)


def _with_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_nulls(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_nulls(item) for item in value]
    return None if value == "<null>" else value

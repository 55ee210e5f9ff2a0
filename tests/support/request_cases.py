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

`sent` is exactly what the case adds to the body of a request that says "Hi" with the group's fields and no others.
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
    profile: str = ""
    strict: bool = False
    sent: dict[str, Any] = {}
    without: tuple[str, ...] = ()
    """What the whole body must not have."""
    losses: dict[str, str] = {}
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

    def profile(self, name: str) -> Profile:
        return msgspec.convert(self.profiles[name] if name else {}, Profile)


@cache
def request_file(dialect: str) -> RequestFile:
    """The file of one dialect."""
    value = tomllib.loads((CASES / "requests" / f"{dialect}.toml").read_text(encoding="utf-8"))
    return msgspec.convert(value, RequestFile)

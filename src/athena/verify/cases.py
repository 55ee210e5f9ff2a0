"""The battery: requests, and what is expected of their answers. Data; a case is one row of a file.

A request is the body of a Chat request without `model` and `stream`, because that is what the files of other verifiers hold.
Athena's own translation puts it to upstreams of every dialect.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

from athena.errors import InvalidRequest
from athena.typed_values import reader

Battery = Literal["wire", "engineering", "behaviour"]
AnswerMode = Literal["whole", "stream"]
BATTERIES: tuple[Battery, ...] = ("wire", "engineering", "behaviour")
Expectation = Literal["call", "no_call", "any", "refusal"]
TextCheck = Literal["", "no_cyrillic", "no_repetition", "parameters_in_order", "ends_with_bracket"]
"""What must be true of an answer's text: the checks of MiniMax-Provider-Verifier."""


class ExpectedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a good answer makes."""

    name: str
    arguments: dict[str, Any] = {}
    """Values that must be equal."""
    allowed: dict[str, list[Any]] = {}
    """Values of which one must be there; an empty text among them: the argument may be left out."""
    loosely: bool = False
    """By the rules of BFCL (`athena.verify.bfcl`): texts are compared without case and light punctuation, and no argument is
    allowed besides these."""


class VerifyCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, and what is expected of its answer."""

    id: str
    battery: Battery
    metric: str
    """The metric that only this kind of case can tell; the metrics of every answer are counted besides."""
    body: dict[str, Any]
    expects: Expectation = "any"
    calls: tuple[ExpectedCall, ...] = ()
    contains: str = ""
    """Text that the answer must hold, whatever the case."""
    text_check: TextCheck = ""
    modes: tuple[AnswerMode, ...] = ("whole", "stream")
    fixed: bool = False
    """Only one answer is possible, so that a streamed and a whole one must be equal."""
    source: str = "athena"


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case as our own files write it."""

    id: str
    metric: str
    ask: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    choice: str = ""
    """auto, none, required, or a tool's name."""
    expects: Expectation = "any"
    calls: tuple[ExpectedCall, ...] = ()
    contains: str = ""
    fixed: bool = False
    modes: tuple[AnswerMode, ...] = ("whole", "stream")
    messages: tuple[dict[str, Any], ...] = ()
    """The whole conversation, where it is longer than one question."""
    body: dict[str, Any] = {}
    """Further fields of the request."""


_read_rows = reader(tuple[_Row, ...])


def read_battery(text: str, battery: Battery, tools: dict[str, Any]) -> tuple[VerifyCase, ...]:
    """The cases of one of our own files; `tools` are those that its rows name."""
    rows = _read_rows(tomllib.loads(text)["case"])
    return tuple(_case(row, battery, tools) for row in rows)


def _case(row: _Row, battery: Battery, tools: dict[str, Any]) -> VerifyCase:
    messages: list[dict[str, Any]] = [{"role": "system", "content": row.system}] if row.system else []
    messages += list(row.messages) or [{"role": "user", "content": row.ask}]
    body: dict[str, Any] = {"messages": messages, "max_tokens": 1024, **row.body}
    if row.tools:
        body["tools"] = [_tool(name, tools) for name in row.tools]
    if row.choice in ("auto", "none", "required"):
        body["tool_choice"] = row.choice
    elif row.choice:
        body["tool_choice"] = {"type": "function", "function": {"name": row.choice}}
    return VerifyCase(
        id=row.id,
        battery=battery,
        metric=row.metric,
        body=body,
        expects=row.expects,
        calls=row.calls,
        contains=row.contains,
        modes=row.modes,
        fixed=row.fixed,
    )


def _tool(name: str, tools: dict[str, Any]) -> dict[str, Any]:
    if name not in tools:
        raise InvalidRequest(f"a case names the tool {name!r}, which its file of tools does not have", path="tools")
    row = tools[name]
    parameters = msgspec.json.decode(row["parameters"])
    return {"type": "function", "function": {"name": name, "description": row["description"], "parameters": parameters}}


@cache
def shipped_cases() -> tuple[VerifyCase, ...]:
    """Our own battery."""
    folder = resources.files("athena.verify").joinpath("battery")
    tools = tomllib.loads(folder.joinpath("tools.toml").read_text("utf-8"))
    return tuple(
        case
        for battery in BATTERIES
        for case in read_battery(folder.joinpath(f"{battery}.toml").read_text("utf-8"), battery, tools)
    )

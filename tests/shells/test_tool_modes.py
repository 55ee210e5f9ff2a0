"""What counts as a refusal of tools, and what is learnt from it: on evidence, for a time, never from one client's fault."""

from __future__ import annotations

import tomllib

import pytest

from athena.model.events import Error
from athena.model.request import Request, Tool
from athena.shells.config import Router
from athena.shells.gateway.targets import KnownTargets
from athena.shells.gateway.tool_modes import ToolModes, names_tools
from support.cases import CASES
from support.gateway_process import load_config

_MESSAGES = tomllib.loads((CASES / "tool_refusals.toml").read_text(encoding="utf-8"))
REQUEST = Request(dialect="openai_chat", model="m", tools=(Tool(name="f"),))
REFUSAL = Error("m does not support tools", status=400)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("message", _MESSAGES["refused"])
def test_messages_that_refuse_tools(message: str) -> None:
    assert names_tools(Error(message, status=400))


@pytest.mark.parametrize("message", _MESSAGES["another_fault"])
def test_messages_about_something_else(message: str) -> None:
    assert not names_tools(Error(message, status=400))


@pytest.mark.parametrize("param", ["tools[0].name", "tools.0.name", "messages[1].tool_calls", "input[0]", "contents[2]"])
def test_an_error_about_one_place_is_about_that_place(param: str) -> None:
    assert not names_tools(Error("tools are not supported here", status=400, param=param))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> KnownTargets:
    value = {"upstreams": {"up": {"base_url": "http://127.0.0.1:9/v1"}}, "models": [{"match": "*", "use": "up/*"}]}
    config = load_config(value, tmp_path_factory.mktemp("modes"))
    return KnownTargets(Router(config))


def test_one_refusal_changes_nothing_for_others_and_the_second_does(targets: KnownTargets) -> None:
    (target,) = targets.of("m")
    learnt: list[str] = []
    clock = Clock()
    modes = ToolModes(clock, learnt.append, keep_s=100)
    assert modes.route(target) is target.route
    assert modes.second_route(target, target.route, REQUEST, REFUSAL) is target.prompted_route
    assert modes.route(target) is target.route, "nobody else is served differently while it is tried"
    modes.confirm(target)
    assert modes.route(target) is target.route
    modes.confirm(target)
    assert modes.route(target) is target.prompted_route
    (other,) = targets.of("other")
    assert modes.route(other) is other.route
    assert (learnt, modes.refusing) == (["up"], 1)


def test_what_was_learnt_expires_and_one_refusal_confirms_it_again(targets: KnownTargets) -> None:
    (target,) = targets.of("m")
    clock = Clock()
    modes = ToolModes(clock, keep_s=100)
    modes.confirm(target)
    modes.confirm(target)
    clock.now = 99
    assert modes.route(target) is target.prompted_route
    clock.now = 100
    assert (modes.route(target), modes.refusing) == (target.route, 0)
    modes.confirm(target)
    assert modes.route(target) is target.prompted_route
    clock.now = 1000
    assert modes.route(target) is target.route
    modes.confirm(target)
    assert modes.route(target) is target.route, "a doubt of long ago is no evidence"


@pytest.mark.parametrize(
    "error",
    [
        None,
        Error("f failed", status=400),
        Error("tools are not supported", status=429),
        Error("tools are not supported", status=401),
    ],
    ids=["no error", "no word", "too many requests", "no key"],
)
def test_other_errors_are_not_asked_again(error: Error | None, targets: KnownTargets) -> None:
    (target,) = targets.of("m")
    assert ToolModes(Clock()).second_route(target, target.route, REQUEST, error) is None


def test_without_tools_or_already_prompted_nothing_is_asked_again(targets: KnownTargets) -> None:
    (target,) = targets.of("m")
    modes = ToolModes(Clock())
    assert target.prompted_route is not None
    assert modes.second_route(target, target.prompted_route, REQUEST, REFUSAL) is None
    assert modes.second_route(target, target.route, Request(dialect="openai_chat", model="m"), REFUSAL) is None

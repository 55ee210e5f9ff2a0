"""What counts as a refusal of a feature, and what is learnt from it: on evidence, for a time, never from one client's fault."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import msgspec
import pytest

from athena.dialects import get_dialect
from athena.exchange import Exchange, Options, Route
from athena.model.events import Error
from athena.model.parts import Base64, Image, Text, ToolCall, ToolResult
from athena.model.request import Request, Tool, Turn
from athena.serving.learning import Learnt, Lesson
from athena.serving.refusals import corrected_route, known_refusals, refused_features
from athena.serving.targets import Target
from athena.shells.config import Router
from athena.shells.config.ready import KnownTargets
from support.cases import CASES
from support.config_file import load_config

_MESSAGES = tomllib.loads((CASES / "refusals.toml").read_text(encoding="utf-8"))
_PIXEL = Image(source=Base64("image/png", "AAAA"))
REQUEST = Request(
    dialect="anthropic_messages",
    model="m",
    system=(Text(text="Be brief."),),
    turns=(
        Turn(role="user", parts=(Text(text="Hi"), _PIXEL)),
        Turn(role="system", parts=(Text(text="Later words."),)),
        Turn(role="assistant", parts=(Text(text=""), ToolCall(id="c", name="f", arguments="{}"))),
        Turn(role="user", parts=(ToolResult(call_id="c", parts=(_PIXEL,)), Text(text=" "))),
    ),
    tools=(Tool(name="f"),),
    parallel=False,
    max_output=100,
    temperature=0.7,
)
"""A request that holds everything that is ever refused."""
SENT = json.dumps({
    "model": "m", "messages": [], "max_tokens": 100, "response_format": {}, "stream_options": {}, "reasoning_effort": "low",
    "frequency_penalty": 1, "n": 1, "context_management": {}, "temperature": 0.7, "parallel_tool_calls": False,
    "tools": [{"name": "f", "eager_input_streaming": True}],
}).encode()  # fmt: skip
REFUSAL = Error("m does not support tools", status=400)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _cases(kind: str) -> list[tuple[str, str]]:
    return [(feature, message) for feature, cases in _MESSAGES.items() for message in cases[kind] if feature != "parameter"]


def test_every_row_has_cases() -> None:
    assert set(known_refusals()) == set(_MESSAGES)


@pytest.mark.parametrize(("feature", "message"), _cases("refused"))
def test_messages_that_refuse_a_feature(feature: str, message: str) -> None:
    assert refused_features(Error(message, status=400, kind="invalid"), REQUEST, SENT) == (feature,)


@pytest.mark.parametrize(
    ("feature", "message"),
    [*_cases("another_fault"), *(("parameter", text) for text in _MESSAGES["parameter"]["another_fault"])],
)
def test_messages_about_something_else(feature: str, message: str) -> None:
    assert refused_features(Error(message, status=400, kind="invalid"), REQUEST, SENT) == ()


@pytest.mark.parametrize("message", _MESSAGES["parameter"]["refused"])
def test_messages_that_refuse_fields(message: str) -> None:
    wanted = tuple(f"parameter:{name}" for name in _MESSAGES["parameter"]["refused"][message])
    assert refused_features(Error(message, status=400, kind="invalid"), REQUEST, SENT) == wanted


def test_a_machine_word_names_the_field() -> None:
    error = Error("no", status=400, kind="invalid", code="unsupported_parameter", param="temperature")
    assert refused_features(error, REQUEST, SENT) == ("parameter:temperature",)
    elsewhere = msgspec.structs.replace(error, param="messages[0].content")
    assert refused_features(elsewhere, REQUEST, SENT) == ()


@pytest.mark.parametrize("param", ["tools[0].name", "tools.0.name", "messages[1].tool_calls", "input[0]", "contents[2]"])
def test_an_error_about_one_place_is_about_that_place(param: str) -> None:
    assert refused_features(Error("tools are not supported here", status=400, param=param), REQUEST, SENT) == ()


@pytest.mark.parametrize(
    "error",
    [
        Error("f failed", status=400),
        Error("tools are not supported", status=429),
        Error("tools are not supported", status=401),
        Error("tools are not supported", status=None),
        Error("image input is not supported: maximum context length is 3 tokens", status=400, kind="context_length"),
    ],
    ids=["no word", "too many requests", "no key", "no answer", "too long"],
)
def test_other_errors_are_not_corrected(error: Error) -> None:
    assert refused_features(error, REQUEST, SENT) == ()


def test_words_of_the_request_itself_are_no_refusal() -> None:
    """A server that repeats what it was sent must not be understood as if it had said that itself."""
    said = "image input is not supported"
    error = Error(f"could not read the file named {said}", status=400, kind="invalid")
    assert refused_features(error, REQUEST, SENT) == ("images",)
    assert refused_features(error, REQUEST, json.dumps({"messages": [{"content": f"see {said}"}]}).encode()) == ()


@pytest.mark.parametrize(("feature", "message"), _cases("refused"))
def test_what_the_request_does_not_hold_was_not_refused(feature: str, message: str) -> None:
    plain = Request(dialect="openai_chat", model="m", turns=(Turn(role="user", parts=(Text(text="Hi"),)),))
    found = refused_features(Error(message, status=400, kind="invalid"), plain, b"{}")
    assert found == (() if feature != "empty_content" else ("empty_content",))


# -- the corrected request -----------------------------------------------------------------------------------------------------


def _targets(tmp_path_factory: pytest.TempPathFactory, **model: Any) -> KnownTargets:
    value = {
        "upstreams": {"up": {"base_url": "http://127.0.0.1:9/v1"}},
        "models": [{"match": "*", "use": "up/*", **model}],
    }
    return KnownTargets(Router(load_config(value, tmp_path_factory.mktemp("learning"))))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> KnownTargets:
    return _targets(tmp_path_factory)


@pytest.fixture(scope="module")
def target(targets: KnownTargets) -> Target:
    return targets.of("m")[0]


def sent(route: Route, request: Request = REQUEST) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(Exchange(request, route, Options()).call.body)
    return body


def test_late_system_messages_become_user_text(target: Target) -> None:
    assert [message["role"] for message in sent(target.route)["messages"]].count("system") == 2
    corrected = sent(corrected_route(target, ("late_system",)))["messages"]
    assert [message["role"] for message in corrected].count("system") == 1
    assert "Later words." in json.dumps(corrected)


@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages"])
def test_ids_of_calls_get_nine_letters(client: str, target: Target) -> None:
    request = REQUEST
    if client == "openai_chat":  # what comes from the same dialect goes out as it came wherever it can
        called = {"id": "call_0123456789", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [called]}]
        own = {"model": "m", "messages": [*said, {"role": "tool", "tool_call_id": "call_0123456789", "content": "done"}]}
        request = get_dialect("openai_chat").decode_request(own, model="m", stream=False)
    messages = sent(corrected_route(target, ("call_ids",)), request)["messages"]
    called_ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert called_ids == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert [len(name) == 9 and name.isalnum() for name in called_ids] == [True]


def test_a_word_stands_where_an_image_was(target: Target) -> None:
    assert "image_url" in json.dumps(sent(target.route))
    body = sent(corrected_route(target, ("images",)))
    assert "image_url" not in json.dumps(body)
    assert json.dumps(body).count("An image was here") == 2, "in the user's words and in the result"


def test_nothing_empty_is_left(target: Target) -> None:
    said = (("user", "Hi"), ("assistant", ""), ("user", ""))
    own = {"model": "m", "messages": [{"role": role, "content": text} for role, text in said]}
    request = get_dialect("openai_chat").decode_request(own, model="m", stream=False)
    assert sent(target.route, request)["messages"] == own["messages"], "at home nothing is changed that nobody refused"
    corrected = sent(corrected_route(target, ("empty_content",)), request)["messages"]
    assert all(message["content"] for message in corrected)


def test_fields_and_switches_are_left_out(target: Target) -> None:
    body = sent(target.route)
    assert {"parallel_tool_calls", "temperature", "max_tokens"} <= set(body)
    body = sent(corrected_route(target, ("parallel", "parameter:temperature", "max_tokens")))
    assert not {"parallel_tool_calls", "temperature", "max_tokens"} & set(body)
    assert body["max_completion_tokens"] == 100


def test_strict_models_lose_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    (strict,) = _targets(tmp_path_factory, strict=True).of("m")
    learnt = Learnt(Clock())
    allowed = {feature for feature in known_refusals() if learnt.may_correct(feature, strict)}
    assert allowed == {"tools", "late_system", "call_ids", "max_tokens"}


# -- what is learnt ------------------------------------------------------------------------------------------------------------


def refused(route: Route, message: str) -> Exchange:
    """An exchange that the upstream refused."""
    exchange = Exchange(REQUEST, route, Options())
    exchange.upstream_head(400, {"content-type": "application/json"})
    exchange.upstream_data(json.dumps({"error": {"message": message}}).encode(), 0.0)
    exchange.upstream_end(None)
    return exchange


def corrected(learnt: Learnt, target: Target, *messages: str, client: str = "") -> bool:
    """One request that is refused with these messages and then answered; whether it was asked again each time."""
    trial = learnt.trial(target, REQUEST, client)
    for message in messages:
        if not trial.corrects(refused(trial.route, message)):
            return False
    trial.answered()
    return True


TOOLS, SYSTEM, IMAGES = (_MESSAGES[feature]["refused"][0] for feature in ("tools", "late_system", "images"))


def test_one_refusal_changes_nothing_for_others_and_the_second_does(targets: KnownTargets) -> None:
    (target,) = targets.of("m")
    told: list[tuple[str, str, str]] = []
    learnt = Learnt(Clock(), lambda *lesson: told.append(lesson), keep_s=100)
    trial = learnt.trial(target, REQUEST)
    assert trial.route is target.route
    assert trial.corrects(refused(trial.route, TOOLS))
    assert trial.route is target.prompted_route
    assert learnt.trial(target, REQUEST).route is target.route, "nobody else is served differently while it is tried"
    trial.answered()
    assert learnt.trial(target, REQUEST).route is target.route
    assert corrected(learnt, target, TOOLS)
    assert learnt.trial(target, REQUEST).route is target.prompted_route
    (other,) = targets.of("other")
    assert learnt.trial(other, REQUEST).route is other.route
    assert (told, learnt.lessons()) == ([("up", "m", "tools")], [Lesson("up", "m", "tools", 100)])


def test_what_was_learnt_expires_and_one_refusal_confirms_it_again(target: Target) -> None:
    clock = Clock()
    learnt = Learnt(clock, keep_s=100)
    assert corrected(learnt, target, TOOLS)
    assert corrected(learnt, target, TOOLS)
    clock.now = 99
    assert learnt.trial(target, REQUEST).route is target.prompted_route
    clock.now = 100
    assert (learnt.trial(target, REQUEST).route, learnt.lessons()) == (target.route, [])
    assert corrected(learnt, target, TOOLS)
    assert learnt.trial(target, REQUEST).route is target.prompted_route
    clock.now = 1000
    assert learnt.trial(target, REQUEST).route is target.route
    assert corrected(learnt, target, TOOLS)
    assert learnt.trial(target, REQUEST).route is target.route, "a doubt of long ago is no evidence"


def test_a_doubt_is_forgotten(target: Target) -> None:
    clock = Clock()
    learnt = Learnt(clock, keep_s=100)
    assert corrected(learnt, target, IMAGES)
    clock.now = 100
    assert corrected(learnt, target, IMAGES)
    assert learnt.trial(target, REQUEST).corrections == ()


def test_what_was_learnt_is_forgotten_when_asked(targets: KnownTargets) -> None:
    (one,), (other,) = targets.of("m"), targets.of("a/b")
    learnt = Learnt(Clock(), keep_s=100)
    for target in (one, other):
        for _ in range(2):
            assert corrected(learnt, target, IMAGES)
        assert corrected(learnt, target, TOOLS) or learnt.trial(target, REQUEST).corrections
    assert learnt.forget("elsewhere") == learnt.forget("up", "nobody") == []
    under_way = learnt.trial(one, REQUEST)
    assert learnt.forget("up", "m") == [Lesson("up", "m", "images", 100)]
    assert under_way.corrections == ("images",)
    assert learnt.trial(one, REQUEST).corrections == ()
    assert learnt.trial(other, REQUEST).corrections == ("images",)
    assert corrected(learnt, one, TOOLS)
    assert learnt.trial(one, REQUEST).corrections == (), "the doubt of before was forgotten as well"
    assert learnt.forget() == [Lesson("up", "a/b", "images", 100)]
    assert (learnt.lessons(), learnt.forget()) == ([], [])


def test_what_one_client_sends_changes_nothing_for_another(target: Target) -> None:
    learnt = Learnt(Clock())
    for _ in range(5):
        assert corrected(learnt, target, IMAGES, client="mallory") or learnt.trial(target, REQUEST, "mallory").corrections
    assert learnt.trial(target, REQUEST, "mallory").corrections == ("images",)
    assert learnt.trial(target, REQUEST, "alice").corrections == ()
    assert corrected(learnt, target, IMAGES, client="alice")
    assert learnt.trial(target, REQUEST, "alice").corrections == ("images",)
    assert learnt.trial(target, REQUEST, "bob").corrections == ("images",), "two clients met the same refusal"


def test_many_clients_cannot_fill_the_memory(target: Target) -> None:
    learnt = Learnt(Clock())
    for number in range(100):
        learnt.confirm(target, ("images",), f"client {number}")
    (evidence,) = learnt._known[target.upstream, target.model].values()
    assert len(evidence.confirmed) <= 16
    for number in range(5000):
        learnt.confirm(msgspec.structs.replace(target, model=f"m{number}"), ("images",), "a")
    assert sum(map(len, learnt._known.values())) <= 4096


def test_one_thing_after_another(target: Target) -> None:
    learnt = Learnt(Clock())
    for _ in range(2):
        assert corrected(learnt, target, SYSTEM, IMAGES, TOOLS)
    assert learnt.trial(target, REQUEST).corrections == ("late_system", "images", "tools")


def test_there_is_an_end_to_it(target: Target) -> None:
    trial = Learnt(Clock()).trial(target, REQUEST)
    messages = [SYSTEM, IMAGES, TOOLS, _MESSAGES["parallel"]["refused"][0]]
    assert [trial.corrects(refused(trial.route, message)) for message in messages] == [True, True, True, False]
    again = Learnt(Clock()).trial(target, REQUEST)
    assert [again.corrects(refused(again.route, SYSTEM)) for _ in range(2)] == [True, False], "the same refusal twice"


def test_without_an_answer_nothing_is_learnt(target: Target) -> None:
    learnt = Learnt(Clock())
    for _ in range(5):
        assert learnt.trial(target, REQUEST).corrects(refused(target.route, IMAGES))
    assert learnt.trial(target, REQUEST).corrections == ()


@pytest.mark.parametrize(
    ("kind", "in_vain"), [("invalid", True), ("upstream", True), ("context_length", False), ("rate_limit", False)]
)
def test_which_error_is_told(kind: Any, in_vain: bool, target: Target) -> None:
    trial = Learnt(Clock()).trial(target, REQUEST)
    exchange = refused(trial.route, IMAGES)
    assert not trial.was_in_vain(exchange), "nothing was corrected yet"
    assert trial.corrects(exchange)
    exchange.error = Error("x", kind=kind, status=400)
    assert trial.was_in_vain(exchange) is in_vain
    assert trial.was_in_vain(None)


def test_tools_have_a_setting_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    (native,) = _targets(tmp_path_factory, tools="native").of("m")
    assert not Learnt(Clock()).trial(native, REQUEST).corrects(refused(native.route, TOOLS))
    (auto,) = _targets(tmp_path_factory).of("m")
    learnt = Learnt(Clock(), correct=False)
    assert learnt.trial(auto, REQUEST).corrects(refused(auto.route, TOOLS))
    assert not learnt.trial(auto, REQUEST).corrects(refused(auto.route, IMAGES))


def test_without_tools_or_already_prompted_nothing_is_asked_again(target: Target) -> None:
    learnt = Learnt(Clock())
    assert corrected(learnt, target, TOOLS)
    assert corrected(learnt, target, TOOLS)
    trial = learnt.trial(target, REQUEST)
    assert trial.route is target.prompted_route
    assert not trial.corrects(refused(trial.route, TOOLS))
    plain = Request(dialect="openai_chat", model="m")
    assert not Learnt(Clock()).trial(target, plain).corrects(refused(target.route, TOOLS))

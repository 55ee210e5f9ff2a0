"""`athena doctor` on twenty broken set-ups: each is named, by the step that fails first, with its remedy."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from athena.serving.record import RequestRecord
from athena.shells.cli import cli
from athena.shells.config import Sources
from athena.shells.doctor import PROBLEMS, CheckStep, CheckWish, StepState, check_up
from athena.shells.gateway.taps import RequestLines
from support.certificates import Authority
from support.patience import PATIENCE
from support.raw_server import Hold, RawServer, Request
from support.scripted_apis import (
    Asked,
    Said,
    chat_answer,
    chat_api,
    connect_proxy,
    free_port,
    page,
    refused,
    said,
    serving,
)


class Setting(NamedTuple):
    """One set-up: what is configured, in which environment, and how long to wait."""

    base_url: str
    more: Mapping[str, Any] = MappingProxyType({})
    """Fields of the upstream."""
    environment: Mapping[str, str] = MappingProxyType({})
    model: str = "good-model"
    seconds: float = PATIENCE
    port: int = 0
    """The gateway's own; 0: any."""
    hostile: str = ""
    """The athena.yml of the current directory."""


SetUp = Callable[[Path], contextlib.AbstractContextManager[Setting]]
SET_UPS: dict[str, tuple[SetUp, str, str, str]] = {}
"""By name: the set-up, the step that names the problem, the problem, and words of the remedy."""


def broken(name: str, step: str, problem: str, remedy: str) -> Callable[[Callable[[Path], Iterator[Setting]]], SetUp]:
    def keep(function: Callable[[Path], Iterator[Setting]]) -> SetUp:
        made = contextlib.contextmanager(function)
        SET_UPS[name] = (made, step, problem, remedy)
        return made

    return keep


@broken("wrong base URL", "address", "wrong_base_url", "set upstreams.only.base_url: {url}/v1")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api("/v1")) as server:
        yield Setting(f"{server.url}/models/v2")


@broken("missing /v1", "address", "missing_version", "leave upstreams.only.path out")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api("/v1")) as server:
        yield Setting(server.url, {"path": "/chat/completions"})


@broken("missing /v1 below a prefix", "address", "missing_version", "set upstreams.only.base_url: {url}/api/v1")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api("/api/v1")) as server:
        yield Setting(server.url)


@broken("doubled /v1", "address", "doubled_version", "set upstreams.only.base_url: {url}/v1")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api("/v1")) as server:
        yield Setting(f"{server.url}/v1/v1")


@broken("wrong dialect", "address", "wrong_dialect", "set upstreams.only.dialect: openai_chat")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api("/v1")) as server:
        yield Setting(f"{server.url}/v1", {"dialect": "anthropic_messages"})


@broken("HTML page", "address", "web_page", "take the address of the API from the provider's documentation")
def _(_: Path) -> Iterator[Setting]:
    with serving(page) as server:
        yield Setting(server.url)


@broken("HTML page beside the API", "address", "web_page", "set upstreams.only.base_url: {url}/api/v1")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api("/api/v1", stray=page)) as server:
        yield Setting(server.url)


@broken("plain HTTP for TLS", "address", "http_for_tls", "set upstreams.only.base_url: https://127.0.0.1:{port}/v1")
def _(folder: Path) -> Iterator[Setting]:
    with serving(chat_api(), Authority(folder).server_context("127.0.0.1")) as server:
        yield Setting(f"http://127.0.0.1:{server.port}/v1")


@broken("TLS for plain HTTP", "tls", "tls_for_http", "set upstreams.only.base_url: http://127.0.0.1:{port}/v1")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api()) as server:
        yield Setting(f"https://127.0.0.1:{server.port}/v1")


@broken("self-signed", "tls", "certificate", "name the authority's file in upstreams.only.ca_file")
def _(folder: Path) -> Iterator[Setting]:
    with serving(chat_api(), Authority(folder).server_context("127.0.0.1")) as server:
        yield Setting(f"{server.url}/v1")


@broken("expired key", "models", "expired_key", "make a new key at the provider and put it where upstreams.only.api_key")
def _(_: Path) -> Iterator[Setting]:
    def expired(asked: Asked) -> Said:
        return refused(401, f"The API key {asked.headers['authorization'][7:]} has expired", "invalid_api_key")

    with serving(expired) as server:
        yield Setting(f"{server.url}/v1", {"api_key": "${ONLY_KEY}"}, {"ONLY_KEY": "sk-very-secret-key"})


@broken("wrong key", "models", "bad_key", "see that upstreams.only.api_key_env (ONLY_KEY) holds a key of 127.0.0.1")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api(key="sk-the-right-one")) as server:
        yield Setting(f"{server.url}/v1", {"api_key_env": "ONLY_KEY"}, {"ONLY_KEY": "sk-very-secret-key"})


@broken("no key", "models", "no_key", "set upstreams.only.api_key_env")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api(key="sk-the-right-one")) as server:
        yield Setting(f"{server.url}/v1")


@broken("unknown model", "completion", "unknown_model", "the nearest that it lists: good-model")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api()) as server:
        yield Setting(f"{server.url}/v1", model="god-model")


@broken("model without tools", "tool call", "no_tools", "set tools: prompted in the model's rule")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api(tools=False)) as server:
        yield Setting(f"{server.url}/v1")


@broken("proxy needed", "name", "proxy_needed", "set upstreams.only.proxy: http://127.0.0.1:")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api()) as server, connect_proxy(server.port) as proxy:
        yield Setting("http://upstream.invalid/v1", environment={"HTTP_PROXY": proxy})


@broken("port taken", "listener", "port_taken", "choose another port: athena serve --port")
def _(_: Path) -> Iterator[Setting]:
    with serving(page) as other, serving(chat_api()) as server:
        yield Setting(f"{server.url}/v1", port=other.port)


@broken("DNS", "name", "dns", "see that upstreams.only.base_url is spelled right")
def _(_: Path) -> Iterator[Setting]:
    yield Setting("http://upstream.invalid/v1")


@broken("refused", "port", "refused", "start the server, or correct host and port in upstreams.only.base_url")
def _(_: Path) -> Iterator[Setting]:
    yield Setting(f"http://127.0.0.1:{free_port()}/v1")


@broken("slow", "address", "slow", "--timeout SECONDS waits longer here")
def _(_: Path) -> Iterator[Setting]:
    with RawServer([Request(), Hold()]) as server:
        yield Setting(f"{server.url}/v1", seconds=0.3)


@broken("empty answer", "completion", "empty_answer", "it may have no model loaded")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api(answer=lambda asked: Said(200, b""))) as server:
        yield Setting(f"{server.url}/v1")


@broken("quota", "completion", "quota", "top up the account behind the key of only")
def _(_: Path) -> Iterator[Setting]:
    def answer(asked: Asked) -> Said:
        return refused(429, "You exceeded your current quota, please check your plan", "insufficient_quota")

    with serving(chat_api(answer=answer)) as server:
        yield Setting(f"{server.url}/v1")


@broken("wrong region path", "address", "wrong_region_path", "correct 'us-east-1' in upstreams.only.base_url")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api("/eu-west-1/v1")) as server:
        yield Setting(f"{server.url}/us-east-1/v1")


@broken("redirect", "address", "redirect", "if that address is right, set upstreams.only.base_url to it")
def _(_: Path) -> Iterator[Setting]:
    with serving(lambda asked: said(308, {}, location="https://elsewhere.example/v1")) as server:
        yield Setting(f"{server.url}/v1")


@broken("hostile file", "configuration", "untrusted_file", "athena config trust")
def _(_: Path) -> Iterator[Setting]:
    with serving(chat_api()) as thief, serving(chat_api()) as server:
        hostile = f"upstreams: {{only: {{base_url: '{thief.url}/v1', api_key: '${{ONLY_KEY}}'}}}}\n"
        yield Setting(f"{server.url}/v1", environment={"ONLY_KEY": "sk-very-secret-key"}, hostile=hostile)
        assert thief.asked == []


def steps_of(setting: Setting, folder: Path) -> list[CheckStep]:
    home, here = folder / "home", folder / "here"
    own = home / ".config" / "athena"
    for directory in (own, here):
        directory.mkdir(parents=True, exist_ok=True)
    rule = {"match": "*", "use": f"only/{setting.model}"}
    config = {"port": setting.port or free_port(), "upstreams": {"only": {"base_url": setting.base_url, **setting.more}}}
    (own / "athena.yml").write_text(json.dumps({**config, "models": [rule]}))
    if setting.hostile:
        (here / "athena.yml").write_text(setting.hostile)
    sources = Sources(environment=setting.environment, directory=here, home=home)

    async def run() -> list[CheckStep]:
        return [step async for step in check_up(sources, CheckWish(seconds=setting.seconds))]

    return asyncio.run(run())


@pytest.mark.parametrize("name", SET_UPS)
def test_a_broken_set_up_is_named_with_its_remedy(name: str, tmp_path: Path) -> None:
    set_up, where, problem, remedy = SET_UPS[name]
    with set_up(tmp_path) as setting:
        steps = steps_of(setting, tmp_path)
    failed = [step for step in steps if step.state is StepState.FAILED]
    wrong = failed or [step for step in steps if step.problem == problem]
    assert wrong, [(step.name, step.said) for step in steps]
    first = wrong[0]
    url, _, rest = setting.base_url.partition("//")
    origin = f"{url}//{rest.partition('/')[0]}"
    assert (first.name, first.problem) == (where, problem), first
    assert remedy.format(url=origin, port=origin.rpartition(":")[2]) in first.remedy, first
    assert first.tried
    assert first.came
    assert all(step.problem in PROBLEMS for step in steps if step.problem)
    assert "sk-very-secret-key" not in repr(steps)


def test_the_issues_twenty_set_ups_are_all_there() -> None:
    wanted = (
        "wrong base URL", "missing /v1", "doubled /v1", "wrong dialect", "HTML page", "plain HTTP for TLS", "self-signed",
        "expired key", "no key", "unknown model", "model without tools", "proxy needed", "port taken", "DNS", "refused", "slow",
        "empty answer", "quota", "wrong region path", "hostile file",
    )  # fmt: skip
    assert len(wanted) == 20
    assert set(wanted) <= set(SET_UPS)


def test_a_set_up_that_works(tmp_path: Path) -> None:
    with serving(chat_api(key="sk-the-right-one")) as server:
        more = {"api_key": "sk-the-right-one"}
        steps = steps_of(Setting(f"{server.url}/v1", more), tmp_path)
        costly = len([asked for asked in server.asked if asked.body and asked.body.get("messages")])
    assert [(step.name, step.state.value) for step in steps if step.state is not StepState.OK] == []
    assert [step.name for step in steps[2:]] == [
        "name", "port", "key", "address", "models", "window", "completion", "streaming", "tool call",
    ]  # fmt: skip
    assert costly == 3
    assert "sk-the-right-one" not in repr(steps)


def test_a_server_without_a_version_in_the_base_url_works(tmp_path: Path) -> None:
    with serving(chat_api("/v1")) as server:
        assert all(step.state is StepState.OK for step in steps_of(Setting(server.url), tmp_path))


def test_every_dialect_is_found(tmp_path: Path) -> None:
    paths = {
        "openai_chat": "/v1/chat/completions",
        "openai_responses": "/v1/responses",
        "anthropic_messages": "/v1/messages",
        "gemini": "/v1beta/models/good-model:generateContent",
    }
    for spoken, path in paths.items():

        def script(asked: Asked, path: str = path) -> Said:
            return refused(400, "a field is required") if asked.path == path else refused(404, "no route for this")

        for configured in paths:
            folder = tmp_path / f"{spoken}-{configured}"
            with serving(script) as server:
                steps = steps_of(Setting(server.url, {"dialect": configured}), folder)
            address = next(step for step in steps if step.name == "address")
            if configured == spoken:
                assert address.state is StepState.OK, address
            else:
                assert address.problem == "wrong_dialect"
                assert f"dialect: {spoken}" in address.remedy


def test_what_is_wrong_with_calls_and_streams_is_told(tmp_path: Path) -> None:
    def leaks(asked: Asked) -> Said:
        if not asked.body.get("tools"):
            return chat_answer(asked)
        text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"}}</tool_call>'
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return said(200, {"id": "a", "object": "chat.completion", "model": "m", "created": 1, "choices": [choice]})

    def cuts(asked: Asked) -> Said:
        whole = chat_answer(asked)
        return whole._replace(body=whole.body[:200]) if asked.body.get("stream") else whole

    def chatters(asked: Asked) -> Said:
        return chat_answer(asked._replace(body={**asked.body, "tools": None}))

    cases = {
        "leaked_call": (leaks, "tool call", StepState.NOTE),
        "cut_answer": (cuts, "streaming", StepState.FAILED),
        "no_call": (chatters, "tool call", StepState.NOTE),
        "no_stream": (
            lambda asked: chat_answer(asked._replace(body={**asked.body, "stream": False})),
            "streaming",
            StepState.NOTE,
        ),
    }
    for problem, (answer, where, state) in cases.items():
        with serving(chat_api(answer=answer)) as server:
            steps = steps_of(Setting(f"{server.url}/v1"), tmp_path / problem)
        found = [(step.name, step.problem, step.state) for step in steps if step.problem]
        assert (where, problem, state) in found, steps


def test_a_broken_configuration_does_not_stop_it(tmp_path: Path) -> None:
    with serving(chat_api()) as server:
        file = tmp_path / "athena.yml"
        file.write_text(
            f"port: many\nupstreams:\n  only:\n    base_url: {server.url}/v1\n    apikey: x\n  other: {{}}\nmodels: 3\n"
        )
        result = CliRunner().invoke(
            cli, ["doctor", "--config", str(file), "--json"], env={"ATHENA_STATE_DIR": str(tmp_path)}, standalone_mode=False
        )
    assert result.return_value == 1, result.output
    steps = [json.loads(line) for line in result.output.splitlines()]
    bad = [step for step in steps if step["problem"] == "bad_config"]
    assert any("port" in step["said"] for step in bad)
    assert any("models" in step["said"] for step in bad)
    assert any(step["problem"] == "unknown_setting" and "api_key" in step["remedy"] for step in steps)
    done = {step["name"]: step["state"] for step in steps if step["upstream"] == "only"}
    assert done["tool call"] == "ok"


def test_the_commands_words_and_exit_codes(tmp_path: Path) -> None:
    environment = {"ATHENA_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    with serving(chat_api()) as server:
        arguments = ["doctor", "--base-url", f"{server.url}/v1", "--port", str(free_port())]
        good = CliRunner().invoke(cli, arguments, env=environment, standalone_mode=False)
        free = CliRunner().invoke(cli, [*arguments, "--free", "--verbose"], env=environment, standalone_mode=False)
    assert good.return_value == 0, good.output
    assert "Everything works." in good.output
    assert free.output.count("not asked: --free") == 3
    assert f"POST {server.url}/v1/chat/completions" in free.output
    gone = CliRunner().invoke(cli, arguments, env=environment, standalone_mode=False)
    assert gone.return_value == 1
    assert "remedy: start the server" in gone.output
    nothing = CliRunner().invoke(cli, ["doctor", "--port", str(free_port())], env=environment, standalone_mode=False)
    assert nothing.return_value == 1
    assert "no upstream is configured" in nothing.output


def test_a_gateway_names_the_command_when_its_first_request_fails(caplog: pytest.LogCaptureFixture) -> None:
    lines = RequestLines()

    def told_of(*requests: tuple[str, str, int]) -> list[str]:
        caplog.clear()
        for upstream, outcome, attempts in requests:
            lines.over(RequestRecord(request_id="r", upstream=upstream, outcome=outcome, attempts=attempts))
        return [record.getMessage() for record in caplog.records if "athena doctor" in record.getMessage()]

    assert told_of(("bad", "error", 0), ("good", "error", 0)) == [], "refused by the gateway: nobody was asked"
    told = told_of(("bad", "error", 1), ("bad", "error", 1), ("good", "ok", 1), ("good", "error", 1), ("", "error", 0))
    assert told == ["the first request to bad failed; athena doctor --upstream bad says why (with the flags of this gateway)"]


def test_an_upstreams_words_can_not_move_the_cursor(tmp_path: Path) -> None:
    def hostile(asked: Asked) -> Said:
        return refused(500, "\x1b[2J\x1b]0;owned\x07 all is well")

    with serving(hostile) as server:
        arguments = ["doctor", "--base-url", f"{server.url}/v1", "--model", "m", "--port", str(free_port()), "-v"]
        result = CliRunner().invoke(
            cli, arguments, env={"ATHENA_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}, standalone_mode=False
        )
    assert result.return_value == 1
    assert "\x1b" not in result.output
    assert "\x07" not in result.output


def test_a_gateway_of_ours_may_have_the_port(tmp_path: Path) -> None:
    def athena(asked: Asked) -> Said:
        return Said(200, b'{"status":"ok"}', headers=(("x-request-id", "req_1"),))

    with serving(athena) as gateway, serving(chat_api()) as server:
        steps = steps_of(Setting(f"{server.url}/v1", port=gateway.port), tmp_path)
    listener = next(step for step in steps if step.name == "listener")
    assert (listener.state, listener.said) == (StepState.OK, f"a gateway of Athena listens on port {gateway.port} already")

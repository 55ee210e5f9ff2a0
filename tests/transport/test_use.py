"""How a program uses the transport: one line, a file or keywords, several models, threads, either library, and its own ways."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from athena.dialects import dialect_names
from athena.errors import ConfigError
from athena.transport import AsyncTransport, Transport
from support.async_sdks import ask_async
from support.faulty_upstream import FaultyUpstream
from support.patience import PATIENCE
from support.sdks import SCHEMA, ask
from support.transport_clients import UPSTREAM_KEY, async_sdk_clients, sdk_clients, settings_for
from support.upstream_speech import TEXT, chat_stream, chat_whole, encode, error_value
from support.upstream_talk import Talk

BOTH = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
HELLO = "".join(TEXT)


@BOTH
def test_either_library(library: ModuleType, upstream: FaultyUpstream) -> None:
    """OpenAI's and Google's clients take both, Anthropic's refuses httpx."""
    with sdk_clients(Transport(**settings_for(upstream.url)), library) as clients:
        for client in dialect_names():
            for stream in (True, False):
                assert ask(client, clients, f"openai_chat/control.{client}", stream=stream).joined("text") == HELLO

    async def run() -> None:
        async with async_sdk_clients(AsyncTransport(**settings_for(upstream.url)), library) as clients:
            for client in dialect_names():
                seen = await ask_async(client, clients, f"anthropic_messages/control.{client}", stream=True)
                assert seen.joined("text") == HELLO

    asyncio.run(run())


def test_the_sdks_default_clients_take_it(upstream: FaultyUpstream) -> None:
    settings = settings_for(upstream.url)
    with anthropic.Anthropic(api_key="x", http_client=anthropic.DefaultHttpxClient(transport=Transport(**settings))) as client:
        message = client.messages.create(model="gemini/control", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
        assert message.content[0].type == "text"
    with openai.OpenAI(api_key="x", http_client=openai.DefaultHttpxClient(transport=Transport(**settings))) as other:
        completion = other.chat.completions.create(model="gemini/control", messages=[{"role": "user", "content": "Hi"}])
        assert completion.choices[0].message.content == HELLO
    options = genai_types.HttpOptions(client_args={"transport": Transport(**settings)})
    with genai.Client(api_key="x", http_options=options) as google:
        assert google.models.generate_content(model="openai_chat/control", contents="Hi").candidates


def test_one_line_with_keywords(upstream: FaultyUpstream) -> None:
    client = openai.OpenAI(
        api_key="x", http_client=httpx2.Client(transport=Transport(base_url=upstream.url + "/v1", api_key="k"))
    )
    completion = client.chat.completions.create(model="control.keywords", messages=[{"role": "user", "content": "Hi"}])
    assert completion.choices[0].message.content == HELLO
    (visit,) = upstream.of("control.keywords")
    assert visit.headers["authorization"] == "Bearer k"
    client.close()


@pytest.mark.parametrize(
    "base_url", ["https://api.deepseek.com", "https://openrouter.ai/api/v1", "http://localhost:1/openai/v1"]
)
def test_whatever_base_url_the_sdk_has(base_url: str, upstream: FaultyUpstream) -> None:
    http = httpx2.Client(transport=Transport(**settings_for(upstream.url)))
    with openai.OpenAI(api_key="x", base_url=base_url, http_client=http) as client:
        completion = client.chat.completions.create(model="gemini/control", messages=[{"role": "user", "content": "Hi"}])
        assert completion.choices[0].message.content == HELLO
        assert client.responses.create(model="gemini/control", input="Hi").output_text == HELLO
        assert client.models.list().object == "list"
    with anthropic.Anthropic(
        api_key="x", base_url=base_url, http_client=httpx2.Client(transport=Transport(**settings_for(upstream.url)))
    ) as other:
        assert (
            other.messages.count_tokens(model="gemini/control", messages=[{"role": "user", "content": "Hi"}]).input_tokens > 0
        )


def test_a_file_with_several_models_behind_one_client(upstream: FaultyUpstream, tmp_path: Path) -> None:
    file = tmp_path / "athena.yml"
    config = {
        "upstreams": {
            "chat": {"base_url": upstream.url, "dialect": "openai_chat", "api_key": "chat-key"},
            "google": {"base_url": upstream.url, "dialect": "gemini", "api_key": "google-key"},
        },
        "models": [
            {"match": "claude-*haiku*", "use": "chat/control.small"},
            {"match": "claude-*", "use": "google/control.large"},
        ],
        "envelope_key": "test",
    }
    file.write_text(json.dumps(config))
    with anthropic.Anthropic(api_key="x", max_retries=0, http_client=httpx2.Client(transport=Transport(file))) as client:
        for model in ("claude-haiku-4", "claude-opus-4"):
            client.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
        assert client.models.retrieve("claude-opus-4").id == "claude-opus-4"
        with pytest.raises(anthropic.NotFoundError, match="gpt"):
            client.messages.create(model="gpt", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    (small,), (large,) = upstream.of("control.small"), upstream.of("control.large")
    assert (small.dialect, small.headers["authorization"]) == ("openai_chat", "Bearer chat-key")
    assert (large.dialect, large.headers["x-goog-api-key"]) == ("gemini", "google-key")


def test_no_upstream_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        Transport()


def test_a_wrong_keyword_is_named() -> None:
    with pytest.raises(ConfigError, match="dialect"):
        Transport(base_url="http://127.0.0.1:9/v1", dialect="no_such_dialect")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"base_ulr": "http://127.0.0.1:9"}, "there is no setting base_ulr; did you mean base_url?"),
        ({"base_url": "http://127.0.0.1:9", "modle": "m"}, "there is no setting modle; did you mean model?"),
        (
            {"upstreams": {"lab": {"base_url": "http://127.0.0.1:9", "apikey": "k"}}},
            "there is no setting upstreams.lab.apikey; did you mean api_key?",
        ),
    ],
)
def test_a_misspelled_setting_is_refused(settings: dict[str, Any], said: str) -> None:
    for kind in (Transport, AsyncTransport):
        with pytest.raises(TypeError) as raised:
            kind(**settings)
        assert str(raised.value) == said


def test_a_misspelled_key_of_a_file_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "athena.yml"
    file.write_text("base_url: http://127.0.0.1:9\nmodle: m\n")
    Transport(file).close()
    assert "modle: unknown key, not used (did you mean model?)" in caplog.text


def test_a_wrong_value_is_named_by_its_keyword() -> None:
    with pytest.raises(ConfigError, match=r"\n  base_url: must be an address") as raised:
        Transport(base_url="127.0.0.1:8000/v1")
    assert "--base-url" not in str(raised.value)


def test_threads_share_a_client(upstream: FaultyUpstream) -> None:
    with sdk_clients(Transport(**settings_for(upstream.url))) as clients, ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(ask, client, clients, f"{dialect}/control.threads", stream=stream)
            for client in dialect_names()
            for dialect in dialect_names()
            for stream in (True, False)
        ]
        for job in jobs:
            seen = job.result(PATIENCE)
            assert seen.joined("text") == HELLO
            assert len(seen.calls()) == 1


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_connections_are_used_again(stream: bool, upstream: FaultyUpstream) -> None:
    """In asynchronous clients always; in synchronous ones unless the end of the body came late."""

    async def run() -> None:
        async with async_sdk_clients(AsyncTransport(**settings_for(upstream.url))) as clients:
            for client in dialect_names():
                for number in range(3):
                    name = f"control.again-{client}-{stream}-{number}"
                    await ask_async(client, clients, f"openai_chat/{name}", stream=stream)

    before = len(upstream.visits)
    asyncio.run(run())
    # Two clients of the SDKs share one transport, whose connections they share.
    assert len({visit.connection for visit in upstream.visits[before:]}) == 1


# -- fallbacks and prompted tools ----------------------------------------------------------------------------------------------


def routed(upstream: FaultyUpstream, rule: dict[str, Any]) -> dict[str, Any]:
    settings = settings_for(upstream.url)
    return {**settings, "models": [{"match": "*", **rule}]}


@pytest.mark.parametrize(
    "fault", ["503", "429", "404", "401-echo-key", "reset", "close-before-headers", "truncated-length", "empty-sse"]
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_next_target_is_asked(fault: str, stream: bool, upstream: FaultyUpstream) -> None:
    bad, good = f"{fault}.fallback-{stream}", f"control.fallback-{fault}-{stream}"
    rule = {"use": f"openai_chat/{bad}", "fallback": [f"gemini/{good}"]}
    if fault == "truncated-length" and stream:
        # It has shown text by then: too late for another.
        return
    with sdk_clients(Transport(**routed(upstream, rule))) as clients:
        assert ask("anthropic_messages", clients, "any", stream=stream).joined("text") == HELLO
    assert (len(upstream.of(bad)), len(upstream.of(good))) == (1, 1)

    async def run() -> str:
        async with async_sdk_clients(AsyncTransport(**routed(upstream, rule))) as clients:
            return (await ask_async("openai_responses", clients, "any", stream=stream)).joined("text")

    assert asyncio.run(run()) == HELLO


def test_a_request_at_fault_is_not_tried_elsewhere(upstream: FaultyUpstream) -> None:
    rule = {"use": "openai_chat/400.only", "fallback": ["gemini/control.never"]}
    with sdk_clients(Transport(**routed(upstream, rule))) as clients, pytest.raises(anthropic.BadRequestError):
        ask("anthropic_messages", clients, "any", stream=True)
    assert upstream.of("control.never") == []


def test_the_last_failure_is_told_when_all_fail(upstream: FaultyUpstream) -> None:
    rule = {"use": "openai_chat/503.first", "fallback": ["gemini/429.last"]}
    with sdk_clients(Transport(**routed(upstream, rule))) as clients, pytest.raises(openai.RateLimitError):
        ask("openai_chat", clients, "any", stream=True)


async def refuses_tools(talk: Talk) -> None:
    """Takes no tools; taught them in its prompt, it calls one."""
    if talk.body.get("tools"):
        await talk.whole(encode(error_value(talk.dialect, 400, "this model does not support tools")), "400 Bad")
        return
    call = '[{"name": "get_weather", "parameters": {"city": "Oslo"}}]'
    await talk.say(chat_stream([{"content": call}], "stop"), chat_whole({"content": call}, "stop"))


@pytest.mark.parametrize("client", dialect_names())
def test_an_upstream_that_refuses_tools_is_taught_them(client: str, upstream: FaultyUpstream) -> None:
    name = f"refuses-{client}"
    upstream.scripts[name] = refuses_tools
    with sdk_clients(Transport(**routed(upstream, {"use": f"openai_chat/{name}"}))) as clients:
        for stream in (True, False, True):
            (call,) = ask(client, clients, "any", stream=stream).calls()
            assert (call.text, call.arguments) == ("get_weather", {"city": "Oslo"})
    # Two requests are refused and asked again with their tools in the prompt; then that is known, and the third is prompted.
    assert [bool(visit.body.get("tools")) for visit in upstream.of(name)] == [True, False, True, False, False]


async def strict_template(talk: Talk) -> None:
    """Takes system messages at the beginning only."""
    roles = [message["role"] for message in talk.body["messages"]]
    if "system" in roles[1:]:
        await talk.whole(encode(error_value(talk.dialect, 400, "System message must be at the beginning.")), "400 Bad")
        return
    await talk.say(chat_stream([{"content": "Hello"}], "stop"), chat_whole({"content": "Hello"}, "stop"))


def test_a_strict_template_gets_late_instructions_as_user_text(upstream: FaultyUpstream) -> None:
    upstream.scripts["strict-template"] = strict_template
    messages: list[Any] = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Wait."}]
    with sdk_clients(Transport(**routed(upstream, {"use": "openai_chat/strict-template"}))) as clients:
        for _ in range(3):
            answer = clients.openai.chat.completions.create(model="any", messages=messages)
            assert answer.choices[0].message.content == "Hello"
    roles = [[message["role"] for message in visit.body["messages"]] for visit in upstream.of("strict-template")]
    assert roles == [["user", "system"], ["user", "user"]] * 2 + [["user", "user"]]


async def mends_its_call(talk: Talk) -> None:
    """Writes a call that is none, and a good one when it is told so."""
    call = '[{"name": "get_weather", "parameters": {"city": '
    call += '"Oslo"}}]' if talk.number % 2 else "oops}}]"
    await talk.say(chat_stream([{"content": call}], "stop"), chat_whole({"content": call}, "stop"))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_prompted_model_is_asked_once_more(stream: bool, upstream: FaultyUpstream) -> None:
    name = f"fixes-{stream}"
    upstream.scripts[name] = mends_its_call
    settings = routed(upstream, {"use": f"openai_chat/{name}", "tools": "prompted"})
    settings["tool_adapter"] = {"reask": True}
    with sdk_clients(Transport(**settings)) as clients:
        (call,) = ask("anthropic_messages", clients, "any", stream=stream).calls()
    assert call.arguments == {"city": "Oslo"}
    assert len(upstream.of(name)) == 2


def test_a_model_configured_without_tools_gets_none(upstream: FaultyUpstream) -> None:
    settings = routed(upstream, {"use": "openai_chat/control.bare", "tools": "none"})
    tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
    with sdk_clients(Transport(**settings)) as clients:
        raw = clients.openai.chat.completions.with_raw_response.create(
            model="any", messages=[{"role": "user", "content": "Hi"}], tools=[tool]
        )
    assert "without tools" in raw.headers["x-athena-warnings"]
    (visit,) = upstream.of("control.bare")
    assert "tools" not in visit.body


def test_no_key_is_ever_shown(upstream: FaultyUpstream) -> None:
    with sdk_clients(Transport(**settings_for(upstream.url))) as clients:
        for stream in (True, False):
            with pytest.raises(openai.OpenAIError) as caught:
                ask("openai_chat", clients, "openai_chat/200-echo-key", stream=stream)
            assert UPSTREAM_KEY not in f"{caught.value!r}{vars(caught.value)}"

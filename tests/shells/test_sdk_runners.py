"""The loops that SDKs run by themselves go through the gateway to their end, on upstreams of every dialect.

Anthropic's tool runner leaves the conversation with the provider by default (`thread`), and OpenAI's clients may do so with
`previous_response_id`. At home both reach the upstream as they are. Elsewhere Anthropic's runner gets the refusal it recovers
from, and for OpenAI's clients the gateway keeps the conversation; with its store switched off it refuses to go on with one.
The upstream refuses every fault of a history, and a call is known by the word that only its result holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic import beta_async_tool, beta_tool
from google.genai import types as genai_types

from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE
from support.sdks import genai_client
from support.session_upstream import DIALECTS, QUESTION, STEPS, SessionUpstream

WORD = "SECRET-0123456789ab"
ASKED = QUESTION.format(path="/home/ann/word.txt")
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: The file.
    """
    return f"{path}: {WORD}"


async def read_file_later(path: str) -> str:
    """Read a file.

    Args:
        path: The file.
    """
    return read_file(path)


@pytest.fixture(scope="module")
def upstream() -> Iterator[SessionUpstream]:
    with SessionUpstream() as running:
        yield running


def config(upstream: SessionUpstream, **more: Any) -> dict[str, Any]:
    upstreams: dict[str, Any] = {name: {"dialect": name, "base_url": upstream.url} for name in DIALECTS}
    upstreams["anthropic"] = {"dialect": "anthropic_messages", "base_url": upstream.url, "profile": "anthropic"}
    upstreams["openai"] = {"dialect": "openai_responses", "base_url": upstream.url, "profile": "openai_responses"}
    models = [{"match": f"on-{name}", "use": f"{name}/tried-model"} for name in upstreams]
    return {"upstreams": upstreams, "models": models, "retries": {"attempts": 0}, "envelope_key": "test", **more}


@pytest.fixture(scope="module")
def gateway(upstream: SessionUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    with running_gateway(config(upstream), tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module")
def forgetful(upstream: SessionUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    """A gateway whose store is switched off."""
    with running_gateway(config(upstream, store=False), tmp_path_factory.mktemp("forgetful")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(upstream: SessionUpstream) -> Iterator[None]:
    upstream.requests.clear()
    yield
    assert upstream.faults == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", [*DIALECTS, "anthropic"])
def test_anthropics_tool_runner(name: str, stream: bool, gateway: GatewayThread, upstream: SessionUpstream) -> None:
    asked: dict[str, Any] = {"model": f"on-{name}", "max_tokens": 500, "messages": [{"role": "user", "content": ASKED}]}
    with anthropic.Anthropic(api_key="any", base_url=gateway.url, max_retries=0, timeout=PATIENCE) as client:
        runner = client.beta.messages.tool_runner(**asked, tools=[beta_tool(read_file)], stream=stream)
        last = runner.until_done()
    assert [block.text for block in last.content if block.type == "text"] == [f"The word is {WORD}."]
    assert len(upstream.requests) == STEPS + 1
    threads = [body.get("thread", {}).get("type") for _, body in upstream.requests]
    assert threads == (["create", *["continue"] * STEPS] if name == "anthropic" else [None] * (STEPS + 1))
    if name == "anthropic":
        assert all(len(body["messages"]) == 1 for _, body in upstream.requests), "the provider has the rest"


def test_anthropics_tool_runner_for_asyncio(gateway: GatewayThread, upstream: SessionUpstream) -> None:
    async def run(name: str) -> list[str]:
        async with anthropic.AsyncAnthropic(api_key="any", base_url=gateway.url, max_retries=0, timeout=PATIENCE) as client:
            runner = client.beta.messages.tool_runner(
                model=f"on-{name}",
                max_tokens=500,
                messages=[{"role": "user", "content": ASKED}],
                tools=[beta_async_tool(read_file_later, name="read_file")],
            )
            last = await runner.until_done()
        return [block.text for block in last.content if block.type == "text"]

    for name in ("openai_chat", "anthropic"):
        assert asyncio.run(run(name)) == [f"The word is {WORD}."]


def _loop_that_is_kept(gateway: GatewayThread, model: str, *, stream: bool) -> str:
    """What the model says in the end to a client that sends only what is new."""
    tools: list[Any] = [{"type": "function", "name": "read_file", "parameters": PARAMETERS, "strict": False}]
    given: Any = ASKED
    previous: Any = openai.omit
    with openai.OpenAI(api_key="any", base_url=f"{gateway.url}/v1", max_retries=0) as client:
        while True:
            asked: dict[str, Any] = {"model": model, "input": given, "tools": tools, "store": True}
            asked["previous_response_id"] = previous
            if stream:
                with client.responses.stream(**asked) as events:
                    response: Any = events.get_final_response()
            else:
                response = client.responses.create(**asked)
            previous = response.id
            given = [
                {"type": "function_call_output", "call_id": item.call_id, "output": read_file("/home/ann/word.txt")}
                for item in response.output
                if item.type == "function_call"
            ]
            if not given:
                said: str = response.output_text
                return said


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", ["the provider is known to keep them", "the gateway has no store"])
def test_responses_that_the_provider_keeps(
    case: str, stream: bool, gateway: GatewayThread, forgetful: GatewayThread, upstream: SessionUpstream
) -> None:
    is_known = case == "the provider is known to keep them"
    asked, model = (gateway, "on-openai") if is_known else (forgetful, "on-openai_responses")
    assert _loop_that_is_kept(asked, model, stream=stream) == f"The word is {WORD}."
    bodies = [body for _, body in upstream.requests]
    assert ["previous_response_id" in body for body in bodies] == [False, *[True] * STEPS]
    assert all(len(body["input"]) == 1 for body in bodies[1:]), "only the result goes along"


@pytest.mark.parametrize("name", DIALECTS)
def test_responses_that_the_gateway_keeps(name: str, gateway: GatewayThread, upstream: SessionUpstream) -> None:
    for stream in (False, True):
        upstream.requests.clear()
        assert _loop_that_is_kept(gateway, f"on-{name}", stream=stream) == f"The word is {WORD}."
        assert len(upstream.requests) == STEPS + 1
        assert not any("previous_response_id" in body for _, body in upstream.requests), "the model is shown everything"


def test_responses_that_nobody_keeps_are_refused(gateway: GatewayThread, forgetful: GatewayThread) -> None:
    """A model that were asked without the conversation would answer something else."""
    for asked, code in ((gateway, "previous_response_not_found"), (forgetful, "unsupported_feature")):
        with openai.OpenAI(api_key="any", base_url=f"{asked.url}/v1", max_retries=0) as client:
            for name in ("openai_chat", "anthropic_messages", "gemini"):
                with pytest.raises(openai.BadRequestError) as caught:
                    client.responses.create(model=f"on-{name}", input="Go on.", previous_response_id="resp_1")
                assert (caught.value.param, caught.value.code) == ("previous_response_id", code)


@pytest.mark.parametrize("name", DIALECTS)
def test_googles_automatic_function_calling(name: str, gateway: GatewayThread, upstream: SessionUpstream) -> None:
    answered = genai_client(gateway.url).models.generate_content(
        model=f"on-{name}", contents=ASKED, config=genai_types.GenerateContentConfig(tools=[read_file])
    )
    assert answered.text == f"The word is {WORD}."
    assert len(upstream.requests) == STEPS + 1

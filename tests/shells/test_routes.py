"""Paths that nobody serves: a 404 in the caller's own shape that says what to set, and never a 405 or a model's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from athena.serving.endpoints import dialect_of_error, find_endpoint, gateway_endpoint
from support.gateway_process import GatewayThread, running_gateway

ANTHROPIC = {"anthropic-version": "2023-06-01"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    """A gateway on the demo upstream's address; nothing is asked of it here."""
    config: dict[str, Any] = {
        "upstreams": {"u": {"base_url": "http://127.0.0.1:9/v1"}}, "models": [{"match": "*", "use": "u/{model}"}],
    }  # fmt: skip
    directory: Path = tmp_path_factory.mktemp("routes")
    with running_gateway(config, directory) as running:
        yield running


def test_unknown_verbs_of_a_model_are_not_found(gateway: GatewayThread) -> None:
    verb = "fly"
    answer = httpx.post(f"{gateway.url}/v1beta/models/gemini-3-pro:{verb}", json={})
    assert answer.status_code == 404
    assert answer.json()["error"]["status"] == "NOT_FOUND"
    assert verb in answer.json()["error"]["message"]


def test_a_models_name_may_hold_a_colon(gateway: GatewayThread) -> None:
    assert httpx.get(f"{gateway.url}/v1/models/qwen3.5:27b").json()["id"] == "qwen3.5:27b"
    endpoint = find_endpoint("/v1/models/qwen3.5:27b", "", {})
    assert endpoint is not None
    assert (endpoint.action, endpoint.model) == ("model", "qwen3.5:27b")


@pytest.mark.parametrize(
    ("path", "headers", "shape", "told"),
    [
        ("/v1/nothing", ANTHROPIC, "anthropic", "no such path: /v1/nothing"),
        ("/v1/nothing", {"x-goog-api-key": "k"}, "gemini", "no such path: /v1/nothing"),
        ("/v1/nothing", {}, "openai", "no such path: /v1/nothing"),
        ("/v1/vector_stores", {}, "openai", "does not serve the vector stores API"),
        ("/v1/messages/nothing", ANTHROPIC, "anthropic", "no such path"),
        ("/v1beta/interactions", {}, "gemini", "does not serve the Interactions API"),
        ("/upload/v1beta/files", {"x-goog-api-key": "k"}, "gemini", "does not serve the Files API"),
    ],
)
def test_unknown_paths_name_the_remedy_in_the_callers_shape(
    path: str, headers: dict[str, str], shape: str, told: str, gateway: GatewayThread
) -> None:
    answer = httpx.post(f"{gateway.url}{path}", json={}, headers=headers)
    assert answer.status_code == 404
    body = answer.json()
    assert told in body["error"]["message"]
    if shape == "anthropic":
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    elif shape == "gemini":
        assert body["error"]["status"] == "NOT_FOUND"
    else:
        code = "unsupported_endpoint" if "does not serve" in told else "unknown_path"
        assert body["error"]["code"] == code, "not a model's fault"
    assert ("base URL" in body["error"]["message"]) is ("no such path" in told), "the base URL is right where the API is known"


@pytest.mark.parametrize(
    ("path", "dialect", "resource", "names"),
    [
        ("/v1/messages/batches", "anthropic_messages", "message_batches", ()),
        ("/v1/v1/messages/batches/b/results", "anthropic_messages", "message_results", ("b",)),
        ("/batches/b/cancel", "openai_chat", "batch_cancel", ("b",)),
        ("/v1/files/f/content", "openai_chat", "file_content", ("f",)),
    ],
)
def test_doors_of_batches(path: str, dialect: str, resource: str, names: tuple[str, ...]) -> None:
    endpoint = gateway_endpoint("GET", path, "", {})
    assert endpoint is not None
    assert (endpoint.action, endpoint.dialect, endpoint.stored, endpoint.names) == ("batches", dialect, resource, names)


def test_a_path_says_whose_error_it_wants() -> None:
    assert dialect_of_error("/v1alpha/x", {}) == "gemini"


def test_a_stream_that_is_one_array_is_labelled_json() -> None:
    from athena.dialects import get_dialect
    from athena.exchange import Exchange, Options, Route

    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    request = get_dialect("gemini").decode_request(body, model="m", stream=True)
    for array, kind in ((True, "application/json"), (False, "text/event-stream")):
        exchange = Exchange(request, Route(dialect="openai_chat", model="m"), Options(array=array))
        exchange.upstream_head(200, {})
        step = exchange.upstream_data(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n')
        assert step.head is not None
        assert step.head.headers["content-type"] == kind

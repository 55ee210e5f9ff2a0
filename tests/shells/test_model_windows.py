"""How much models take: read from upstreams' lists in every spelling, listed in each dialect's fields, the rule first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai

from athena.shells.config import OfferedModel, Window, read_models
from athena.shells.config.windows import published_window
from support.fault_judge import Answer, read_answer, request_bytes, send
from support.gateway_process import GatewayThread, free_port, running_gateway
from support.plain_upstream import PlainUpstream, Reply

VLLM = {"object": "list", "data": [{"id": "Qwen/Qwen3-Coder-30B", "object": "model", "max_model_len": 32768}]}


@pytest.fixture
def upstream() -> Iterator[PlainUpstream]:
    with PlainUpstream({"/v1/models": Reply(VLLM)}) as running:
        yield running


def _config(upstream: PlainUpstream, models: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "upstreams": {"local": {"base_url": f"{upstream.url}/v1", "api_key": "sk-upstream-12345678", **more}},
        "models": models,
        "envelope_key": "test",
    }


def _get(gateway: GatewayThread, path: str, *headers: str) -> Answer:
    with send(gateway.port, request_bytes(path, b"", *headers, method="GET")) as sock:
        return read_answer(sock)


def _ids(answer: Answer) -> list[str]:
    return [entry["id"] for entry in json.loads(answer.body)["data"]]


# -- reading lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"id": "m", "max_model_len": 32768}, Window(32768)),
        ({"id": "m", "context_length": 262144, "top_provider": {"max_completion_tokens": 65536}}, Window(262144, 65536)),
        ({"id": "m", "context_window": 131072, "max_completion_tokens": 8192}, Window(131072, 8192)),
        ({"id": "m", "max_context_length": 131072}, Window(131072)),
        ({"id": "m", "max_input_tokens": 200000, "max_tokens": 64000}, Window(200000, 64000)),
        ({"name": "models/m", "inputTokenLimit": 1048576, "outputTokenLimit": 65536}, Window(1048576, 65536)),
        ({"id": "m", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}}, Window(8192)),
        ({"id": "m", "meta": {"n_ctx_train": 131072}}, Window(131072)),
        ({"id": "m", "loaded_context_length": 4096, "max_context_length": 131072}, Window(4096)),
        (
            {"id": "m", "capabilities": {"limits": {"max_context_window_tokens": 128000, "max_output_tokens": 16384}}},
            Window(128000, 16384),
        ),
        ({"id": "m", "metadata": {"context_length": 65536, "max_tokens": 4096}}, Window(65536, 4096)),
        ({"id": "m", "context_length": None, "max_model_len": "many", "top_provider": 3, "meta": []}, Window()),
        ({"id": "m", "context_length": -1, "max_tokens": True}, Window()),
    ],
)
def test_a_window_in_every_servers_spelling(entry: dict[str, Any], window: Window) -> None:
    assert read_models({"data": [entry]}) == (OfferedModel("m", window),)


@pytest.mark.parametrize("value", [None, 3, [], {}, {"data": {}}, {"data": [1, {"id": 3}, {"id": ""}, {"id": "a\nb"}]}])
def test_what_is_no_list_is_an_empty_one(value: Any) -> None:
    assert read_models(value) == ()


def test_lists_of_other_shapes() -> None:
    assert [model.id for model in read_models([{"id": "bare"}])] == ["bare"]
    gemini = {
        "models": [
            {"name": "models/g", "supportedGenerationMethods": ["generateContent"]},
            {"name": "models/e", "supportedGenerationMethods": ["embedContent"]},
        ]
    }
    assert [model.id for model in read_models(gemini)] == ["g"]
    assert len(read_models({"data": [{"id": f"m{number}"} for number in range(9000)]})) == 5000


def test_published_windows() -> None:
    assert published_window("moonshotai/Kimi-K2-0905") == Window(262144)
    assert published_window("moonshotai/kimi-k2-0711-preview") == Window(131072)
    assert published_window("nobody/knows-this") == Window()


def test_the_first_that_knows_counts_and_an_answer_fits_into_its_window() -> None:
    assert Window(100).or_else(Window(200, 50)) == Window(100, 50)
    assert Window(100).or_else(Window(200, 150)) == Window(100, 100)


# -- the gateway's list --------------------------------------------------------------------------------------------------------


def test_an_upstream_alone_lists_its_own_models(upstream: PlainUpstream, tmp_path: Path) -> None:
    with running_gateway(_config(upstream, [{"match": "*", "use": "local"}]), tmp_path) as running:
        first, second = _get(running, "/v1/models"), _get(running, "/v1/models")
    assert _ids(first) == _ids(second) == ["Qwen/Qwen3-Coder-30B"]
    assert first.headers["x-athena-upstreams"] == "local=ok"
    (asked,) = upstream.visits
    assert asked.headers["authorization"] == "Bearer sk-upstream-12345678"


def test_only_names_that_lead_to_the_model_are_listed(upstream: PlainUpstream, tmp_path: Path) -> None:
    models = [{"id": "a"}, {"id": "vendor/b"}, {"id": "taken"}]
    upstream.table["/v1/models"] = Reply({"data": models})
    rules = [
        {"match": "taken", "use": "local/a"},
        {"match": "mine/*", "use": "local/vendor/*"},
        {"match": "*", "use": "local/{model}"},
    ]
    with running_gateway(_config(upstream, rules), tmp_path) as running:
        assert _ids(_get(running, "/v1/models")) == ["taken", "a", "mine/b", "vendor/b"]


@pytest.mark.parametrize(
    ("rule", "window"),
    [
        ({}, (32768, 32768)),
        ({"context": 16000}, (16000, 16000)),
        ({"output": 4000}, (32768, 4000)),
        ({"context": 16000, "output": 4000}, (16000, 4000)),
    ],
)
def test_every_sdk_reads_the_window(
    rule: dict[str, int], window: tuple[int, int], upstream: PlainUpstream, tmp_path: Path
) -> None:
    rules = [{"match": "mine", "use": "local/Qwen/Qwen3-Coder-30B", **rule}]
    with running_gateway(_config(upstream, rules), tmp_path) as running:
        with openai.OpenAI(api_key="k", base_url=f"{running.url}/v1") as chat:
            for entry in (next(iter(chat.models.list())), chat.models.retrieve("mine")):
                value = entry.to_dict()
                assert (value["id"], value["context_length"], value["max_model_len"]) == ("mine", window[0], window[0])
                assert value["max_completion_tokens"] == window[1]
        with anthropic.Anthropic(api_key="k", base_url=running.url) as claude:
            model = claude.models.retrieve("mine")
            assert (model.max_input_tokens, model.max_tokens) == window
        with genai.Client(api_key="k", http_options={"base_url": running.url}) as google:
            found = google.models.get(model="mine")
            assert (found.input_token_limit, found.output_token_limit) == window


def test_a_name_that_is_not_listed_has_its_window_too(upstream: PlainUpstream, tmp_path: Path) -> None:
    with running_gateway(_config(upstream, [{"match": "*", "use": "local"}]), tmp_path) as running:
        known = json.loads(_get(running, "/v1/models/moonshotai/kimi-k2-0905").body)
        unknown = json.loads(_get(running, "/v1/models/nobody/knows").body)
    assert (known["id"], known["context_length"]) == ("moonshotai/kimi-k2-0905", 262144)
    assert unknown == {
        "id": "nobody/knows",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "local",
        "root": "nobody/knows",
    }


def test_an_upstream_that_is_not_to_be_asked(upstream: PlainUpstream, tmp_path: Path) -> None:
    rules = [{"match": "mine", "use": "local/x"}, {"match": "*", "use": "local"}]
    with running_gateway(_config(upstream, rules, list_models=False), tmp_path) as running:
        answer = _get(running, "/v1/models")
    assert _ids(answer) == ["mine", "x"]
    assert answer.headers["x-athena-upstreams"] == "local=not_asked"
    assert not upstream.visits


@pytest.mark.parametrize(
    ("reply", "state", "warning"),
    [
        (Reply({"error": "no"}, 401), "refused", "upstream local: it refuses its credentials (status 401)"),
        (Reply({"error": "no"}, 404), "no_list", ""),
        (Reply(b"<html>", kind="text/html"), "no_list", ""),
        (Reply(VLLM, cut=True), "unreachable", "upstream local:"),
    ],
)
def test_an_upstream_without_a_list(reply: Reply, state: str, warning: str, upstream: PlainUpstream, tmp_path: Path) -> None:
    upstream.table["/v1/models"] = reply
    rules = [{"match": "mine", "use": "local/x"}, {"match": "*", "use": "local"}]
    with running_gateway(_config(upstream, rules), tmp_path) as running:
        answer = _get(running, "/v1/models")
    assert (answer.status, _ids(answer)) == (200, ["mine", "x"])
    assert answer.headers["x-athena-upstreams"] == f"local={state}"
    assert warning in answer.headers.get("x-athena-warnings", "")
    assert bool(warning) == ("x-athena-warnings" in answer.headers)
    assert "sk-upstream" not in str(answer.headers)


def test_an_upstream_that_is_not_there_is_named_and_the_others_are_listed(upstream: PlainUpstream, tmp_path: Path) -> None:
    config = _config(upstream, [{"match": "x-*", "use": "gone/*"}, {"match": "*", "use": "local"}])
    config["upstreams"]["gone"] = {"base_url": f"http://127.0.0.1:{free_port()}/v1"}
    with running_gateway(config, tmp_path) as running:
        answer = _get(running, "/v1/models")
    assert _ids(answer) == ["Qwen/Qwen3-Coder-30B"]
    assert answer.headers["x-athena-upstreams"] == "local=ok, gone=unreachable"
    assert "upstream gone: " in answer.headers["x-athena-warnings"]


def test_a_clients_own_key_asks_for_its_own_list(upstream: PlainUpstream, tmp_path: Path) -> None:
    config = _config(upstream, [{"match": "*", "use": "local"}], forward_client_key=True, api_key=None)
    with running_gateway(config, tmp_path) as running:
        for key in ("one", "two", "one"):
            assert _get(running, "/v1/models", f"authorization: Bearer {key}").status == 200
    assert [request.headers["authorization"] for request in upstream.visits] == ["Bearer one", "Bearer two"]

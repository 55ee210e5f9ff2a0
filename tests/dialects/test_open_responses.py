"""Whatever an upstream answers, a client of Responses gets objects and events that are valid Open Responses.

`tests/cases/open_responses.json` says in our own words what that standard asks. `ATHENA_OPEN_RESPONSES` names a copy of the
standard's own OpenAPI document, which is then tried as well. What the standard does not have (free-form tools, tools of one
provider, images in answers) goes out as OpenAI writes it and is not looked at here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from athena.dialects import dialect_names
from athena.errors import UpstreamStatus
from athena.translate import StreamTranslator, translate_response
from support.cases import answer_modes, case_bytes
from support.open_responses import JUDGES, problems

REQUESTS: list[dict[str, Any]] = [
    {"model": "m", "input": "Hi"},
    {
        "model": "m",
        "input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "instructions": "Be polite.",
        "tools": [
            {"type": "function", "name": "get_weather"},
            {"type": "function", "name": "a", "description": "d", "parameters": {"type": "object"}, "strict": True},
        ],
        "tool_choice": {"type": "function", "name": "a"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_logprobs": 2,
        "presence_penalty": 0.25,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        "reasoning": {"effort": "low"},
        "metadata": {"a": "b"},
        "max_output_tokens": 100,
        "store": False,
        "truncation": "auto",
        "service_tier": "flex",
        "prompt_cache_key": "k",
    },
    {
        "model": "m",
        "input": "Hi",
        "tools": [{"type": "function", "name": "a", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]},
        "text": {"format": {"type": "json_object"}},
        "reasoning": {},
    },
]


def _written(upstream: str, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that a client gets of all cases of one upstream dialect: the case's name, and a response or an event."""
    for case, mode in answer_modes(upstream):
        common: dict[str, Any] = {"source": upstream, "target": "openai_responses", "seed": "s", "created": 5}
        if mode == "stream":
            translator = StreamTranslator(request={**request, "stream": True}, **common)
            text = translator.feed(case_bytes(case, mode)) + translator.close()
            for line in text.decode().split("\n"):
                if line.startswith("data: {"):
                    yield case.name, json.loads(line.removeprefix("data: "))
        else:
            try:
                yield case.name, translate_response(case_bytes(case, mode), request=request, **common).body
            except UpstreamStatus:
                continue  # an error has another form, which the SDKs judge elsewhere


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("upstream", [name for name in dialect_names() if name != "openai_responses"])
def test_what_clients_of_responses_get_is_valid_open_responses(upstream: str, judge: str) -> None:
    seen = set()
    for request in REQUESTS:
        for case, value in _written(upstream, request):
            if "image_generation_call" in json.dumps(value):
                continue
            kind = "" if value.get("object") == "response" else value["type"]
            seen.add(kind)
            wrong = problems(value, judge)
            assert not wrong, (case, kind, wrong)
    assert {"", "response.created", "response.completed", "response.failed", "response.incomplete"} <= seen
    assert {"response.function_call_arguments.done", "response.output_text.delta", "response.output_item.done"} <= seen

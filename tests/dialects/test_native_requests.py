"""A request to an upstream of the client's own dialect is that upstream's to judge; state that lives elsewhere is refused."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import pytest

from athena import translate_request
from athena.dialects import get_dialect
from athena.errors import UnsupportedFeature
from athena.model.events import error_event
from athena.model.profile import Profile

RESPONSES: dict[str, Any] = {"model": "gpt-5.1", "store": True, "tools": [{"type": "function", "name": "f", "parameters": {}}]}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "12:00"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
NATIVE: list[tuple[str, dict[str, Any]]] = [
    ("openai_responses", {**RESPONSES, "previous_response_id": "resp_1", "input": [OUTPUT]}),
    ("openai_responses", {**RESPONSES, "conversation": "conv_1", "input": [OUTPUT]}),
    ("openai_responses", {**RESPONSES, "input": [{"type": "item_reference", "id": "fc_1"}, OUTPUT]}),
    # A function that runs in the background: its call stands there without a result, and the result comes late.
    ("openai_responses", {**RESPONSES, "input": [{**CALL, "async": True}, {"role": "user", "content": "Go on."}]}),
    ("openai_responses", {**RESPONSES, "input": [CALL, {"role": "assistant", "content": "Wait."}, OUTPUT]}),
    # Tools that the provider holds: in a stored prompt, in a thread.
    ("openai_responses", {"model": "gpt-5.1", "prompt": {"id": "pmpt_1"}, "input": "Hi", "tool_choice": "required"}),
    (
        "anthropic_messages",
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 10,
            "thread": {"type": "continue", "previous_message_id": "msg_1"},
            "messages": [{"role": "user", "content": "Hi"}],
            "tool_choice": {"type": "any"},
        },
    ),
    (
        "gemini",
        {
            "contents": [
                {"role": "user", "parts": [{"text": "Hi"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
                {"role": "user", "parts": [{"text": "Go on."}]},
            ],
            "tools": [{"functionDeclarations": [{"name": "f", "behavior": "NON_BLOCKING"}]}],
        },
    ),
    (
        "anthropic_messages",
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 10,
            "thread": {"type": "continue", "previous_message_id": "msg_1"},
            "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]}],
        },
    ),
    (
        "openai_chat",
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "other", "content": "x"},
            ],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "body"), NATIVE)
def test_history_goes_home_as_it_is(dialect: str, body: dict[str, Any]) -> None:
    """Half of a pair may be kept by the upstream, and a call may be pending: nothing is invented, turned to text or refused."""
    sent = translate_request(body, source=dialect, target=dialect, model="gemini-3-pro" if dialect == "gemini" else None)
    assert json.loads(json.dumps(sent.body)) == body
    assert sent.warnings == ()


THREADS: list[dict[str, Any]] = [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}]


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: str(thread["type"]))
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "gemini", "anthropic_messages"])
def test_threads_are_refused_where_nobody_keeps_them(thread: dict[str, Any], target: str) -> None:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}], "thread": thread}
    profile = Profile(dialect=target)  # a server of no family: it imitates the dialect and keeps nothing
    with pytest.raises(UnsupportedFeature) as caught:
        translate_request(body, source="anthropic_messages", target=target, profile=profile)
    assert (caught.value.code, caught.value.path) == ("thread_unsupported_request", "thread")


def _refused() -> tuple[int, bytes]:
    error = UnsupportedFeature("thread: no", path="thread", code="thread_unsupported_request")
    answer = get_dialect("anthropic_messages").encode_error(error_event(error))
    return answer.status, answer.body


def test_the_sdks_tool_runner_goes_on_without_a_thread() -> None:
    """Anthropic's SDK sends `thread` by default, and recovers by itself from exactly this refusal."""
    seen: list[dict[str, Any]] = []
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "stop_sequence": None,
        "content": [{"type": "text", "text": "Hello."}], "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip

    def serve(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        seen.append(body)
        if "thread" in body:
            status, refusal = _refused()
            return httpx2.Response(status, content=refusal, headers={"content-type": "application/json"})
        return httpx2.Response(200, json=message)

    client = anthropic.Anthropic(
        api_key="k", base_url="http://test", max_retries=0, http_client=httpx2.Client(transport=httpx2.MockTransport(serve))
    )
    runner = client.beta.messages.tool_runner(model="m", max_tokens=10, tools=[], messages=[{"role": "user", "content": "Hi"}])
    assert runner.until_done().content[0].type == "text"
    assert [("thread" in body, len(body["messages"])) for body in seen] == [(True, 1), (False, 1)]


def test_details_of_an_anthropic_error_reach_the_sdk() -> None:
    """Its SDKs recover from a lost thread, an expired file and more by `details.error_code`."""
    dialect = get_dialect("anthropic_messages")
    details = {"error_code": "thread_not_found", "thread_id": "t"}
    body = {"type": "error", "error": {"type": "not_found_error", "message": "gone", "details": details}}
    error = dialect.decode_error(404, {}, json.dumps(body).encode())
    again = dialect.encode_error(error)
    assert again.status == 404
    assert json.loads(again.body)["error"]["details"] == details

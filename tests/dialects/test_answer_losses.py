"""What of an answer a client's dialect has no place for is told: in `warnings`, in the header, in numbers and in the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from athena import StreamTranslator, translate_response
from support.gateway_process import running_gateway
from support.plain_upstream import PlainUpstream, Reply

PNG = "aGk="


def chat(**message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "Look.", **message}
    return {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}


def messages(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(blocks), "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1, "service_tier": "standard"}, **fields,
    }  # fmt: skip


def responses(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": list(items), **fields}


def gemini(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", **fields}]}


CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
UPLOAD = {"type": "container_upload", "file_id": "f"}
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "arguments": "{}", "name": "f", "server_label": "s"}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": PNG}}
LINK = {"images": [{"type": "image_url", "image_url": {"url": "https://x.test/i.png"}}]}
PICTURE = {"images": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]}
SOUND = {"audio": {"id": "a", "data": PNG, "transcript": "Words.", "expires_at": 1}}
LOGPROBS = {"logprobs": {"content": [{"token": "a", "logprob": 0.0, "bytes": None, "top_logprobs": []}]}}

LOST: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("gemini", gemini(IMAGE), "anthropic_messages", "answer.image", "dropped"),
    ("gemini", gemini({"text": "Run:"}, CODE), "anthropic_messages", "answer.executableCode", "dropped"),
    ("gemini", gemini({"text": "Run:"}, CODE), "openai_chat", "answer.executableCode", "dropped"),
    ("gemini", gemini({"text": "Run:"}, CODE), "openai_responses", "answer.executableCode", "dropped"),
    ("gemini", gemini({"text": "x"}, logprobsResult={"topCandidates": []}), "openai_chat", "answer.logprobs", "dropped"),
    ("gemini", gemini({"text": "x"}, newThing=1), "openai_chat", "answer.candidate.newThing", "dropped"),
    ("anthropic_messages", messages(UPLOAD), "openai_chat", "answer.container_upload", "dropped"),
    ("anthropic_messages", messages(UPLOAD), "gemini", "answer.container_upload", "dropped"),
    ("anthropic_messages", messages(container={"id": "c"}), "openai_responses", "answer.container", "dropped"),
    ("openai_responses", responses(APPROVAL), "anthropic_messages", "answer.mcp_approval_request", "dropped"),
    ("openai_responses", responses(APPROVAL), "openai_chat", "answer.mcp_approval_request", "dropped"),
    ("openai_responses", responses(new_thing=1), "gemini", "answer.new_thing", "dropped"),
    ("openai_chat", chat(**PICTURE), "anthropic_messages", "answer.image", "dropped"),
    ("openai_chat", chat(**LINK), "anthropic_messages", "answer.image", "emulated"),
    ("openai_chat", chat(**LINK), "openai_responses", "answer.image", "emulated"),
    ("openai_chat", chat(**SOUND), "anthropic_messages", "answer.audio", "emulated"),
    ("openai_chat", chat(**SOUND), "openai_responses", "answer.audio", "emulated"),
    ("openai_chat", chat(new_thing=1), "gemini", "answer.message.new_thing", "dropped"),
]


@pytest.mark.parametrize(("source", "answer", "target", "path", "action"), LOST)
def test_a_whole_answer_tells_what_it_lost(source: str, answer: dict[str, Any], target: str, path: str, action: str) -> None:
    translated = translate_response(answer, source=source, target=target)
    assert [(loss.path, loss.action) for loss in translated.warnings] == [(path, action)]
    assert translate_response(answer, source=source, target=source).warnings == (), "at home nothing is lost"


def test_logprobs_of_a_chat_answer() -> None:
    answer = chat()
    answer["choices"][0].update(LOGPROBS)
    assert [loss.path for loss in translate_response(answer, source="openai_chat", target="gemini").warnings] == [
        "answer.logprobs"
    ]


@pytest.mark.parametrize("target", ["openai_chat", "gemini"])
def test_an_unknown_field_of_a_text_part_is_told_at_home_too(target: str) -> None:
    """There is no place for it between the pieces of one text."""
    translated = translate_response(gemini({"text": "x", "newThing": 1}), source="gemini", target=target)
    assert [loss.path for loss in translated.warnings] == ["answer.part.newThing"]


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "gemini"])
def test_labels_are_no_loss(target: str) -> None:
    """Tiers, fingerprints and details of usage say nothing of the answer: to warn of them would be noise."""
    assert (
        translate_response(messages({"type": "text", "text": "Hi"}), source="anthropic_messages", target=target).warnings == ()
    )
    plain = {**chat(), "system_fingerprint": "fp", "service_tier": "default", "provider": "p"}
    assert translate_response(plain, source="openai_chat", target="anthropic_messages").warnings == ()
    told = responses(service_tier="default", billing={"payer": "x"}, background=False)
    assert translate_response(told, source="openai_responses", target="anthropic_messages").warnings == ()


def events(*values: dict[str, Any]) -> bytes:
    return b"".join(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode() for value in values)


MESSAGE_START = {"type": "message_start", "message": messages()}
MESSAGE_END: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


def test_a_stream_tells_what_it_lost() -> None:
    stream = StreamTranslator(source="anthropic_messages", target="openai_chat")
    stream.feed(events(
        MESSAGE_START,
        {"type": "content_block_start", "index": 0, "content_block": UPLOAD},
        {"type": "content_block_stop", "index": 0},
        {"type": "weather_report", "sky": "blue"},
        *MESSAGE_END,
    ))  # fmt: skip
    stream.close()
    assert stream.done is not None
    assert {loss.path for loss in stream.warnings} == {"answer.container_upload", "answer.weather_report"}


def test_unknown_and_progress_events_of_responses_go_on_at_home() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
    told = [
        {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item},
        {"type": "response.web_search_call.searching", "sequence_number": 2, "output_index": 0, "item_id": "ws_1"},
        {"type": "response.weather_report", "sequence_number": 3, "sky": "blue"},
        {"type": "response.output_item.done", "sequence_number": 4, "output_index": 0, "item": item},
        {"type": "response.completed", "sequence_number": 5, "response": responses(item)},
    ]
    home = StreamTranslator(source="openai_responses", target="openai_responses", profile="responses_compatible")
    shown = (home.feed(events(*told)) + home.close()).decode()
    kinds = [json.loads(line[6:])["type"] for line in shown.splitlines() if line.startswith("data: ")]
    assert kinds == [
        "response.created", "response.in_progress", "response.weather_report", "response.output_item.added",
        "response.web_search_call.searching", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert home.warnings == ()
    abroad = StreamTranslator(source="openai_responses", target="anthropic_messages")
    abroad.feed(events(*told))
    assert {loss.path for loss in abroad.warnings} == {"answer.web_search_call", "answer.response.weather_report"}


# -- through the gateway -----------------------------------------------------------------------------------------------------


@pytest.fixture
def upstream() -> Iterator[str]:
    data = json.dumps(gemini(IMAGE)).encode()
    replies = {
        "/v1beta/models/m:generateContent": Reply(data),
        "/v1beta/models/m:streamGenerateContent": Reply(b"data: " + data + b"\r\n\r\n", kind="text/event-stream"),
    }
    with PlainUpstream(replies) as running:
        yield running.url


def test_the_gateway_tells_in_header_numbers_and_log(upstream: str, tmp_path: Path) -> None:
    config = {"upstreams": {"g": {"base_url": upstream, "dialect": "gemini"}}, "models": [{"match": "*", "use": "g/{model}"}]}
    asked = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Draw."}]}
    with running_gateway(config, tmp_path) as gateway:
        whole = httpx.post(f"{gateway.url}/v1/messages", json=asked)
        assert "answer.image dropped: answers hold no such content here" in whole.headers["x-athena-warnings"]
        streamed = httpx.post(f"{gateway.url}/v1/messages", json={**asked, "stream": True})
        assert "message_stop" in streamed.text
        assert 'athena_answer_losses_total{action="dropped"} 2.0' in httpx.get(f"{gateway.url}/metrics").text
        lines = [line for line in gateway.logs.lines if "'answer_warnings': 1" in line]
    assert len(lines) == 2

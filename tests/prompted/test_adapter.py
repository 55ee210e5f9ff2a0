"""The library class: requests, whole answers, streams, both ways of waiting, errors, presets, metrics, extension points."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from athena.formats.machine.value_types import ToolBook
from athena.model.request import Tool
from athena.prompted.errors import (
    ToolConfigurationError,
    ToolNetworkError,
    ToolProcessingError,
    ToolSystemError,
    ToolValidationError,
    http_status,
)
from athena.prompted.metrics import FunctionCallDetection, MetricsEvent, ToolTransformation
from athena.prompted.presets import PRESETS
from athena.prompted.readers import CallGroup, FoundText, PromptedCall, PromptedItem
from athena.tool_adapter import ToolAdapter
from prompted.test_requests import BODIES
from prompted.test_stage import answer
from support.patience import PATIENCE

CALL = '{"name": "f", "parameters": {"n": 1}}'
BODY = BODIES["openai_chat"]


def message(content: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(answer(content, stream=False))
    return value


def pieces(content: str) -> list[bytes]:
    data = answer(content, stream=True)
    return [data[start : start + 40] for start in range(0, len(data), 40)]


def test_a_whole_answer() -> None:
    adapter = ToolAdapter()
    adapted = adapter.transform_request(BODY)
    assert "tools" not in adapted.body
    assert BODY["tools"], "the caller's body is not touched"
    result = adapter.transform_response(message(f"Sure.\n{CALL}"), adapted)
    choice = result["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"].startswith("Sure.")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"n": 1}'}


def test_without_a_call_the_answer_is_what_it_was() -> None:
    adapter = ToolAdapter()
    adapted = adapter.transform_request(BODY)
    reply = {**message("Just text {x}."), "vendor_field": {"kept": True}}
    assert adapter.transform_response(reply, adapted) == reply


def test_a_request_without_tools_is_what_it_was() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "vendor_field": 1}
    adapted = ToolAdapter().transform_request(body)
    assert adapted.body == body
    assert not adapted.changed
    assert list(ToolAdapter().stream([b"x", b"y"], adapted)) == [b"x", b"y"]


def test_a_stream_both_ways() -> None:
    adapter = ToolAdapter(policy="collect_then_stop")
    adapted = adapter.transform_request({**BODY, "stream": True})
    expected = b"".join(adapter.stream(pieces(f"[{CALL}]"), adapted))
    assert expected.endswith(b"data: [DONE]\n\n")
    assert b'"tool_calls"' in expected

    async def source() -> AsyncIterator[bytes]:
        for piece in pieces(f"[{CALL}]"):
            yield piece

    async def main() -> bytes:
        return b"".join([piece async for piece in adapter.stream_async(source(), adapted)])

    assert asyncio.run(main()) == expected


def test_the_window_is_a_real_timer() -> None:
    adapter = ToolAdapter(policy="collect_then_stop", window_ms=30, clock=time.monotonic)
    adapted = adapter.transform_request({**BODY, "stream": True})

    async def main() -> bytes:
        never = asyncio.get_running_loop().create_future()

        async def source() -> AsyncIterator[bytes]:
            yield answer(CALL, stream=True).partition(b'"delta": {}')[0].rpartition(b"data: ")[0]
            await never

        stream = adapter.stream_async(source(), adapted, wait_for=asyncio.wait_for)
        return b"".join([piece async for piece in stream])

    output = asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert output.endswith(b"data: [DONE]\n\n")


def test_all_dialects() -> None:
    replies: dict[str, Any] = {
        "openai_chat": message(CALL),
        "anthropic_messages": {"id": "1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                               "content": [{"type": "text", "text": CALL}], "usage": {"input_tokens": 1, "output_tokens": 1}},
        "openai_responses": {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [
            {"type": "message", "id": "x", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": CALL, "annotations": []}]}]},
        "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": CALL}]}, "finishReason": "STOP"}]},
    }  # fmt: skip
    for dialect, body in BODIES.items():
        adapter = ToolAdapter(dialect=dialect)
        adapted = adapter.transform_request(body, model="m")
        assert "tools" not in adapted.body
        shown = json.dumps(adapter.transform_response(replies[dialect], adapted))
        assert '"f"' in shown
        assert "parameters" not in shown.replace('"parameters": {}', "").replace('"parameters": {"type"', "") or dialect == (
            "openai_responses"
        )


def test_options_are_checked_whole() -> None:
    with pytest.raises(ToolConfigurationError) as caught:
        ToolAdapter(policy="never", dialect="klingon", template="", profile="nobody", speed=3)
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"policy", "dialect", "template", "profile", "speed"}
    with pytest.raises(ToolConfigurationError, match="unknown"):
        ToolAdapter(preset_name="fast")
    assert [warning.key for warning in ToolAdapter(max_calls=-3).warnings] == ["max_calls"]


def test_presets() -> None:
    assert set(PRESETS) == {"production", "development", "quiet", "batch", "chat", "edge"}
    for name, value in PRESETS.items():
        adapter = ToolAdapter(preset_name=name)
        assert adapter.options == value.options
    batch = ToolAdapter(preset_name="batch", max_calls=2)
    assert (batch.options.policy, batch.options.max_calls) == ("drain_all", 2)
    assert ToolAdapter().options.policy == "stop_on_first"


def test_metrics_are_typed_and_contained() -> None:
    seen: list[MetricsEvent] = []
    adapter = ToolAdapter(metrics=seen.append, clock=time.perf_counter)
    adapted = adapter.transform_request(BODY)
    adapter.transform_response(message(f"ok {CALL}"), adapted)
    b"".join(adapter.stream(pieces("nothing"), adapter.transform_request({**BODY, "stream": True})))
    first, second, _, last = seen
    assert isinstance(first, ToolTransformation)
    assert (first.tool_count, first.tool_names) == (1, ("f",))
    assert first.prompt_length > 100
    assert isinstance(second, FunctionCallDetection)
    assert (second.function_count, second.function_names, second.streaming) == (1, ("f",), False)
    assert (second.content_length, second.json_candidates) == (len(CALL) + 3, 1)
    assert set(second.performance.parts) == {"json_parsing", "call_extraction"}
    assert second.performance.duration > 0
    assert isinstance(last, FunctionCallDetection)
    assert (last.function_count, last.streaming) == (0, True)

    failures: list[Exception] = []

    def broken(event: MetricsEvent) -> None:
        raise RuntimeError("sink")

    adapter = ToolAdapter(metrics=broken, on_metrics_error=failures.append)
    adapter.transform_response(message(CALL), adapter.transform_request(BODY))
    assert len(failures) == 2


def test_errors_have_five_classes() -> None:
    adapter = ToolAdapter(max_tools=1)
    with pytest.raises(ToolValidationError) as invalid:
        adapter.transform_request({**BODY, "tools": [*BODY["tools"], {"type": "function", "function": {"name": "g"}}]})
    assert http_status(invalid.value) == 400
    with pytest.raises(ToolValidationError):
        adapter.transform_request({"model": "m"})
    required = adapter.transform_request({**BODY, "tool_choice": "required"})
    with pytest.raises(ToolProcessingError) as unmet:
        adapter.transform_response(message("no"), required)
    assert http_status(unmet.value) == 502
    with pytest.raises(ToolNetworkError):
        adapter.transform_response({"error": {"message": "boom", "type": "server_error"}}, required)
    with pytest.raises(ToolSystemError) as gone:
        list(adapter.stream(pieces("hello"), adapter.transform_request(BODY), cancelled=lambda: True))
    assert http_status(gone.value) == 499

    def send(body: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("refused")

    with pytest.raises(ToolNetworkError, match="refused"):
        adapter.complete(BODY, send)


def test_complete_asks_once_more() -> None:
    sent: list[dict[str, Any]] = []
    replies = iter([message('{"name": "f", "parameters": 7}'), message(CALL)])

    def send(body: dict[str, Any]) -> dict[str, Any]:
        sent.append(body)
        return next(replies)

    result = ToolAdapter(reask=True).complete(BODY, send)
    assert result["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"
    assert len(sent) == 2
    assert "could not be used" in sent[1]["messages"][-1]["content"]
    assert result["usage"]["prompt_tokens"] == 200

    async def send_later(body: dict[str, Any]) -> dict[str, Any]:
        return message(CALL)

    assert asyncio.run(ToolAdapter(reask=True).complete_async(BODY, send_later))["choices"][0]["finish_reason"] == "tool_calls"


class ShoutReader:
    """A custom parser: `CALL name` on a line is a call."""

    def __init__(self, book: ToolBook) -> None:
        self._book = book
        self._held = ""

    @property
    def pending(self) -> bool:
        return bool(self._held)

    def is_plain(self, text: str) -> bool:
        return False

    def feed(self, text: str) -> list[PromptedItem]:
        self._held += text
        *lines, self._held = self._held.split("\n")
        return [self._line(line) for line in lines]

    def close(self, *, ended_well: bool) -> list[PromptedItem]:
        held, self._held = self._held, ""
        return [self._line(held)] if held else []

    def _line(self, line: str) -> PromptedItem:
        name = line.removeprefix("CALL ")
        if name != line and self._book.admits(name):
            return CallGroup((PromptedCall(name, "{}"),), line)
        return FoundText(line + "\n")


def test_a_parser_and_a_template_of_ones_own() -> None:
    adapter = ToolAdapter(
        policy="allow_mixed", style="shout", parsers={"shout": ShoutReader}, template="Tools:\n%s\nWrite CALL and a name."
    )
    adapted = adapter.transform_request(BODY)
    assert "Write CALL and a name." in json.dumps(adapted.body)
    result = adapter.transform_response(message("Well.\nCALL f\nCALL nobody"), adapted)["choices"][0]["message"]
    assert [call["function"]["name"] for call in result["tool_calls"]] == ["f"]
    assert result["content"] == "Well.\nCALL nobody\n"


def test_plain_text_in_and_out() -> None:
    adapter = ToolAdapter(policy="allow_mixed")
    tools = (Tool(name="f"),)
    found = adapter.extract(iter(f"Hi {CALL} there"), tools)
    assert (found.text, [call.name for call in found.calls]) == ("Hi  there", ["f"])
    assert '"f"' in adapter.prompt(tools)


def test_one_adapter_serves_many_threads() -> None:
    adapter = ToolAdapter(policy="drain_all")
    adapted = adapter.transform_request({**BODY, "stream": True})
    expected = b"".join(adapter.stream(pieces(f"a {CALL} b"), adapted))
    results: list[bytes] = []

    def work() -> None:
        for _ in range(5):
            results.append(b"".join(adapter.stream(pieces(f"a {CALL} b"), adapted)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 20


def test_a_stream_may_be_dropped() -> None:
    closed: list[bool] = []

    def source() -> Iterator[bytes]:
        try:
            yield from pieces(f"{CALL} and more")
        finally:
            closed.append(True)

    adapter = ToolAdapter()
    stream = adapter.stream(source(), adapter.transform_request({**BODY, "stream": True}))
    next(stream)
    assert isinstance(stream, Iterator)
    del stream
    assert closed == [True]

"""Inkling of Thinking Machines: messages of a kind; a message of the tool kind holds one JSON call.

    <|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{"a":1}}<|end_message|>

The prompt ends with `<|message_model|>`, so an answer may begin with a header or a kind. The header's name does not count, the
payload's does. Origin: vLLM's parser/inkling and SGLang's inkling_detector. Tool messages as text
(`<|content_invoke_tool_text|>`) are words.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.messages import MessageReader, Messages
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import json_calls, result_text, spaced_json, tool_json
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

START, END, SAMPLING_END = "<|message_model|>", "<|end_message|>", "<|content_model_end_sampling|>"
THINKING, TEXT = "<|content_thinking|>", "<|content_text|>"
CALL, CALL_TEXT, CALL_ERROR = "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>"
ENDS = (END, SAMPLING_END)

_READ = MessageReader(
    Messages(
        start=(START,),
        thinking=(THINKING,),
        text=(TEXT, CALL_TEXT, CALL_ERROR),
        calls=(CALL,),
        ends=ENDS,
        read_calls=json_block_reader(ENDS, (START, CALL, TEXT, THINKING)),
    )
)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One message per call, headed by its name."""
    payloads = json_calls(calls, arguments="args")
    messages = (f"{START}{call.name}{CALL}{payload}{END}" for call, payload in zip(calls, payloads, strict=True))
    return "".join(messages) + SAMPLING_END


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool message per result."""
    return "".join(f"<|message_tool|>{result.name or 'tool'}{TEXT}{result_text(result)}{END}" for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    """The system message that declares tools; the model was trained on it."""
    declared = spaced_json([{**tool_json(tool)["function"], "type": "function"} for tool in tools])
    return f"<|message_system|>tool_declare<|content_xml|>{declared}{END}"


def inexpressible(call: ToolCall) -> str | None:
    """The name also heads the message."""
    return "the name does not fit into a header" if "<|" in call.name or len(call.name.split()) > 1 else None


FORMAT = Format(
    id="inkling",
    reserved=True,
    openers=(
        *(Opener(marker, _READ) for marker in (START, THINKING, TEXT, CALL, CALL_TEXT, CALL_ERROR)),
        Opener("", _READ.read_beginning, auto=False),
    ),
    thinking=(),
    closers=ENDS,
    turn_ends=ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)

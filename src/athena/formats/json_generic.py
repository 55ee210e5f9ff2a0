"""JSON under a prompt: an object or array of calls, bare or in a code fence, for any model that was asked to answer so.

    ```json
    {"name": "f", "arguments": {"a": 1}}
    ```

JSON is also what answers are made of, so the guard is tight: a declared name, an arguments key, and no key that calls do not
have; the first that does not fit makes it text again. Read only where the format is named. Origin: llama.cpp
docs/function-calling.md (its generic wrappers), smolagents, SMG's json parser.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from athena.formats.bodies.arguments import end_of_block, json_value
from athena.formats.bodies.named import CallKeys, read_named_calls
from athena.formats.bodies.near_misses import NO_OBJECT, NO_OBJECTS, unlike
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, function_array, json_calls, result_text, spaced_json
from athena.formats.machine.scanner import Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

FENCES = ("```json", "```tool_call", "```tool_use", "```tool_code", "```")
FIELDS = CallKeys(
    wrappers=("function", "function_call", "tool_call"),
    lists=("tool_calls",),
    others=("type", "index"),
    needs_arguments=True,
    name_is_key=True,
)
_FENCE_END = Lexer(("```",))
_RESPONSE = '"response"'


def read_fenced(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A fence whose content is nothing but calls."""
    yield from scan.space()
    if (yield from scan.peek(1)) not in ("{", "["):
        raise Declined
    if not (yield from read_named_calls(scan, calls, ("```",), FIELDS)):
        raise Declined
    yield from end_of_block(scan, calls, _FENCE_END, ("```",))


def read_bare(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """An object or array at the start of a line."""
    scan.put_back_taken(len(opener))
    if not (yield from read_named_calls(scan, calls, (), FIELDS)):
        raise Declined


def read_response(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The whole answer is llama.cpp's wrapper around text: an object with nothing but `response`. Shown when it ends."""
    yield from scan.space()
    if not (yield from scan.found(_RESPONSE)) or (yield from scan.head()) != ":":
        raise Declined
    scan.take(1)
    if (yield from scan.head()) != '"':
        raise Declined
    text = yield from json_value(scan, calls)
    if text is None or (yield from scan.head()) != "}":
        raise Declined
    scan.take(1)
    if (yield from scan.head()) != "":
        raise Declined
    calls.say(msgspec.json.decode(text, type=str), thinking=False)
    calls.settle()


def render_calls(calls: Sequence[ToolCall]) -> str:
    """An array, also for one call."""
    return "[" + ", ".join(json_calls(calls)) + "]"


def render_results(results: Sequence[ToolResult]) -> str:
    """Results as JSON, by name and call."""
    return "\n".join(
        spaced_json({"tool": result.name or "", "tool_call_id": result.call_id, "result": result_text(result)})
        for result in results
    )


TOOL_PROMPT = ToolPrompt(
    f"These tools can be called:\n{TOOLS}\n\n"
    "To call tools, answer with nothing but a JSON array, without a code fence:\n"
    '[{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]\nTo answer without a tool, write plain text.',
    function_array,
)


FORMAT = Format(
    id="json_generic",
    openers=(
        *(Opener(fence + "\n", read_fenced, where="line", auto=False, never=unlike("{", "[")) for fence in FENCES),
        Opener("{", read_response, where="start", auto=False, rank=-1, never=unlike(_RESPONSE)),
        Opener("{", read_bare, where="line", auto=False, never=NO_OBJECT),
        Opener("[", read_bare, where="line", auto=False, never=NO_OBJECTS),
    ),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)

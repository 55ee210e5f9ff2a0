"""Hermes: JSON in `<tool_call>` tags. Nous Hermes, Qwen2.5, Qwen3 and many fine-tunes.

    <tool_call>
    {"name": "get_time", "arguments": {"tz": "UTC"}}
    </tool_call>

Origin: the chat templates of Qwen2.5, Qwen3, QwQ, Hermes 2 Pro and Granite 4; Qwen-Agent's nous prompt (which does not read
calls inside reasoning).
"""

from __future__ import annotations

import msgspec

from athena.formats.bodies.hermes_text import TOOL_PROMPT, render_calls, render_results
from athena.formats.bodies.near_misses import no_json
from athena.formats.bodies.tool_call_blocks import (
    END,
    FUNCTION_OPENER,
    JSON_OPENER,
    KEYED_OPENER,
    read_bare_json,
    read_json_block,
)
from athena.formats.machine.base import Format, Opener

FORMAT = Format(
    id="hermes",
    openers=(
        JSON_OPENER,
        Opener("<tools>", read_json_block, auto=False, never=no_json()),
        Opener("", read_bare_json, auto=False),
        msgspec.structs.replace(FUNCTION_OPENER, auto=False),
        msgspec.structs.replace(KEYED_OPENER, auto=False),
    ),
    closers=(END, "</tools>", "</function_call>"),
    thinking=(("<think>", "</think>"), ("<scratch_pad>", "</scratch_pad>")),
    turn_ends=("<|im_end|>",),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)

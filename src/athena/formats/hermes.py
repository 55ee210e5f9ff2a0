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
    models=(
        "hermes-2-pro*",
        "hermes-3*",
        "hermes-3-llama*",
        "hermes-4*",
        "qwen2.5*",
        "qwen-2.5*",
        "qwq*",
        "qwen3*",
        "qwen-3*",
        "mimo-vl*",
        "granite-4*",
        "granite-4.0*",
        "granite-4.1*",
        "smollm3*",
        "bielik*v3*",
        "reka-edge*",
        "falcon-h1*",
        "nanbeige*",
        "arch-*",
        "trinity*",
        "k-exaone-236b*",
        "exaone-4*",
        "ling-1*",
        "ling-2*",
        "ling-mini*",
        "ling-flash*",
        "ling-lite*",
        "ling-plus*",
        "ring-1*",
        "ring-2*",
        "ring-mini*",
        "ring-flash*",
        "ring-lite*",
    ),
    family="qwen",
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

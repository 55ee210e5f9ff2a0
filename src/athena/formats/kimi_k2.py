"""Kimi K2 of Moonshot AI: special tokens around an id that holds the name.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Tokyo"}<|tool_call_end|><|tool_calls_section_end|>

Origin: MoonshotAI/Kimi-K2 docs/tool_call_guidance.md and the model's chat template; its deviations come from
recorded answers. The tokens can be replaced by configuration (`tokens`), also to serve later versions of the
format.
"""  # noqa: E501 - the sample is one line for the model

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from athena.errors import ConfigError
from athena.formats.bodies.headed import CallHead, Headed, HeadedReader
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text, tool_array
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

TOKENS = {
    "section_begin": "<|tool_calls_section_begin|>",
    "section_end": "<|tool_calls_section_end|>",
    "call_begin": "<|tool_call_begin|>",
    "argument_begin": "<|tool_call_argument_begin|>",
    "call_end": "<|tool_call_end|>",
}
SINGULAR_BEGIN = "<|tool_call_section_begin|>"
SINGULAR_END = "<|tool_call_section_end|>"
PREFIX = "functions."

_INDEXED = re.compile(r"(.+):\s*\d+", re.DOTALL)
_FOREIGN = re.compile(r"(?:call_|chatcmpl-|toolu_|tooluse_|fc_|id_)")
_GLUED = re.compile(r"(?:functions)?\.?(.*?)_?(\d+)", re.DOTALL)


def read_id(text: str, calls: CallWriter) -> CallHead:
    """The name inside an id: between `functions.` and the last `:digits`; damaged ids by what is declared."""
    book = calls.book
    indexed = _INDEXED.fullmatch(text)
    bare = (indexed.group(1) if indexed else text).strip()
    name = bare.removeprefix(PREFIX)
    for known in (bare, name, text):
        if book.declared(known):
            return CallHead(known, text if indexed or text.startswith(PREFIX) else "")
    glued = _GLUED.fullmatch(bare)
    if glued is not None and not indexed and book.declared(glued.group(1)):
        return CallHead(glued.group(1))
    if not text or text.isdigit() or name.isdigit() or _FOREIGN.match(text):
        return CallHead(None)
    if indexed or text.startswith(PREFIX) or book.open:
        return CallHead(name, text)
    return CallHead(None)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """A section. Ids that are not Kimi's own are numbered from 0, because foreign ids make the model lose its thread."""
    parts = [TOKENS["section_begin"]]
    for number, call in enumerate(calls):
        own = _INDEXED.fullmatch(call.id) is not None and call.id.startswith(PREFIX)
        native = call.id if own else f"{PREFIX}{call.name}:{number}"
        parts.append(f"{TOKENS['call_begin']}{native}{TOKENS['argument_begin']}{call.arguments or '{}'}{TOKENS['call_end']}")
    parts.append(TOKENS["section_end"])
    return "".join(parts)


def render_results(results: Sequence[ToolResult]) -> str:
    """One system turn per result, headed by the id of its call."""
    return "".join(
        f"<|im_system|>{result.name or 'tool'}<|im_middle|>## Return of {result.call_id}\n{result_text(result)}<|im_end|>"
        for result in results
    )


TOOL_PROMPT = ToolPrompt(
    f"<|im_system|>tool_declare<|im_middle|>{TOOLS}<|im_end|>",
    tool_array,
)
"""The declaration turn; the model was trained on it and needs no instruction besides."""


def with_tokens(tokens: Mapping[str, str]) -> Format:
    """The format with other tokens, by their names in `TOKENS`."""
    unknown = sorted(set(tokens) - set(TOKENS))
    if unknown or not all(tokens.values()):
        raise ConfigError(f"unknown or empty Kimi tokens: {', '.join(unknown) or 'empty value'}; known: {', '.join(TOKENS)}")
    used = {**TOKENS, **tokens}
    singular_begin = (SINGULAR_BEGIN,) if "section_begin" not in tokens else ()
    singular_end = (SINGULAR_END,) if "section_end" not in tokens else ()
    shape = Headed(
        section_begin=(used["section_begin"], *singular_begin),
        section_end=(used["section_end"], *singular_end),
        call_begin=(used["call_begin"],),
        argument_begin=(used["argument_begin"],),
        call_end=(used["call_end"],),
        head=read_id,
    )
    read = HeadedReader(shape)
    return Format(
        id="kimi_k2",
        reserved=True,
        openers=(
            *(Opener(marker, read, never=read.never_section) for marker in shape.section_begin),
            *(Opener(marker, read) for marker in shape.call_begin),
        ),
        closers=(*shape.section_end, *shape.call_end),
        strays=shape.argument_begin,
        turn_ends=("<|im_end|>",),
        render_calls=render_calls,
        render_results=render_results,
        render_tools=TOOL_PROMPT,
        inexpressible=BareNameRule(
            reason="the name does not fit into an id", pieces=("<|", "\n", "{", "**", "```"), blanks="inside", empty=True
        ),
        tokens=used,
        with_tokens=with_tokens,
    )


FORMAT = with_tokens({})

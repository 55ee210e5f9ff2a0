"""Calls in all their forms (rows 39 to 44)."""

from __future__ import annotations

import json
from typing import Any

from support.fault_scripts.registry import fault
from support.upstream_speech import ARGUMENTS, NAME, call_entry, call_piece, calls, chat_stream, chat_whole
from support.upstream_talk import Talk


def _tool(
    name: str, deltas: list[dict[str, Any]], whole: list[dict[str, Any]] | None = None, finish: str = "tool_calls"
) -> None:
    """A Chat answer made of these deltas; whole, of these entries, else of what the deltas mean."""

    @fault(name)
    async def script(talk: Talk) -> None:
        entries = whole if whole is not None else [call_entry("call_a", "a", '{"p": 1}'), call_entry("call_b", "b", '{"p": 2}')]
        await talk.say(chat_stream(deltas, finish), chat_whole({"content": None, "tool_calls": entries}, finish))


_A, _B = '{"p": 1}', '{"p": 2}'
_tool(
    "tool-interleaved",
    [
        calls(call_piece(0, "", "call_a", "a"), call_piece(1, "", "call_b", "b")),
        calls(call_piece(0, _A[:3])), calls(call_piece(1, _B[:4])), calls(call_piece(0, _A[3:])), calls(call_piece(1, _B[4:])),
    ],
)  # fmt: skip
_tool(
    "tool-two-in-one",
    [calls(call_piece(0, _A, "call_a", "a"), call_piece(1, _B, "call_b", "b"))],
)
_tool(
    "tool-index-zero",
    [
        calls(call_piece(0, "", "call_a", "a")), calls(call_piece(0, _A)), calls(call_piece(0, "", "call_b", "b")),
        calls(call_piece(0, _B)),
    ],
)  # fmt: skip
_tool(
    "tool-no-index",
    [
        calls(call_piece(None, "", "call_a", "a")), calls(call_piece(None, _A[:3])), calls(call_piece(None, _A[3:])),
        calls(call_piece(None, "", "call_b", "b")), calls(call_piece(None, _B)),
    ],
)  # fmt: skip
_tool("tool-index-gap", [calls(call_piece(3, _A, "call_a", "a")), calls(call_piece(17, _B, "call_b", "b"))])
_tool(
    "tool-no-id",
    [calls(call_piece(0, _A, None, "a")), calls(call_piece(1, _B, None, "b"))],
    [call_entry(None, "a", _A), call_entry(None, "b", _B)],
)
_tool(
    "tool-dup-id",
    [calls(call_piece(0, _A, "call_x", "a")), calls(call_piece(1, _B, "call_x", "b"))],
    [call_entry("call_x", "a", _A), call_entry("call_x", "b", _B)],
)
_tool(
    "tool-late-name",
    [calls(call_piece(0, None, "call_a")), calls(call_piece(0, _A[:4], None, "a")), calls(call_piece(0, _A[4:])),
     calls(call_piece(1, _B, "call_b", "b"))],
)  # fmt: skip
_tool(
    "tool-name-repeated",
    [calls(call_piece(0, _A[:4], "call_a", "a")), calls(call_piece(0, _A[4:], "call_a", "a")),
     calls(call_piece(1, _B[:4], "call_b", "b")), calls(call_piece(1, _B[4:], "call_b", "b"))],
)  # fmt: skip
_tool("tool-whole", [calls(call_piece(0, _A, "call_a", "a"), call_piece(1, _B, "call_b", "b"))])
_tool(
    "tool-args-object",
    [calls(call_piece(0, {"p": 1}, "call_a", "a")), calls(call_piece(1, {"p": 2}, "call_b", "b"))],
    [call_entry("call_a", "a", {"p": 1}), call_entry("call_b", "b", {"p": 2})],
)
_tool(
    "tool-name-split",
    [calls(call_piece(0, None, "call_a", "get_")), calls(call_piece(0, None, None, "weather")),
     calls(call_piece(0, "".join(ARGUMENTS)))],
    [call_entry("call_a", NAME, "".join(ARGUMENTS))],
)  # fmt: skip
_tool("tool-bad-args", [calls(call_piece(0, '{"p": oops}', "call_a", "a"))], [call_entry("call_a", "a", '{"p": oops}')])
_tool(
    "tool-truncated-args",
    [calls(call_piece(0, '{"p": 1, "city": "Par', "call_a", "a"))],
    [call_entry("call_a", "a", '{"p": 1, "city": "Par')],
    "length",
)
_tool(
    "tool-cut-silently",
    [calls(call_piece(0, '{"p": 1, "city": "Par', "call_a", "a"))],
    [call_entry("call_a", "a", '{"p": 1, "city": "Par')],
)
_tool("tool-empty-args", [calls(call_piece(0, "", "call_a", "a"))], [call_entry("call_a", "a", "")])
_tool("tool-double-encoded", [calls(call_piece(0, json.dumps(_A), "call_a", "a"))], [call_entry("call_a", "a", json.dumps(_A))])
_DEEP = '{"p":' + "[" * 100 + "]" * 100 + "}"
_tool("tool-deep-args", [calls(call_piece(0, _DEEP, "call_a", "a"))], [call_entry("call_a", "a", _DEEP)])
_DEEPER = '{"p":' + "[" * 50_000 + "]" * 50_000 + "}"
_tool("tool-deeper-args", [calls(call_piece(0, _DEEPER, "call_a", "a"))], [call_entry("call_a", "a", _DEEPER)])
_tool("tool-nan-args", [calls(call_piece(0, '{"p": NaN}', "call_a", "a"))], [call_entry("call_a", "a", '{"p": NaN}')])
_tool(
    "tool-dup-arg-keys",
    [calls(call_piece(0, '{"p": 7, "p": 1}', "call_a", "a"))],
    [call_entry("call_a", "a", '{"p": 7, "p": 1}')],
)
_tool("tool-finish-stop", [calls(call_piece(0, _A, "call_a", "a")), calls(call_piece(1, _B, "call_b", "b"))], finish="stop")
_tool("tool-unknown", [calls(call_piece(0, _A, "call_a", "launch"))], [call_entry("call_a", "launch", _A)])
EVIL = 'x"}\r\n\r\ndata: {"evil": 1}\n\nevent: message_stop\n<script>'
_tool("tool-evil-name", [calls(call_piece(0, _A, 'id"\r\n\n', EVIL))], [call_entry('id"\r\n\n', EVIL, _A)])
MANY = 300
_tool(
    "tool-many",
    [calls(call_piece(number, f'{{"p": {number}}}', f"call_{number}", "a")) for number in range(MANY)],
    [call_entry(f"call_{number}", "a", f'{{"p": {number}}}') for number in range(MANY)],
)
HUGE = "é" * (1024 * 1024)
_HUGE_ARGUMENTS = json.dumps({"city": HUGE}, ensure_ascii=False)
_tool(
    "tool-huge-args",
    [calls(call_piece(0, "", "call_a", "a"))]
    + [calls(call_piece(0, _HUGE_ARGUMENTS[start : start + 4096])) for start in range(0, len(_HUGE_ARGUMENTS), 4096)],
    [call_entry("call_a", "a", _HUGE_ARGUMENTS)],
)

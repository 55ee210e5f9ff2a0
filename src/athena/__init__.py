"""Athena makes tool calling work between any client and any model.

Everything listed here is public; the rest is not. Heavy parts load on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from athena import errors
    from athena.batch import parse_batch
    from athena.calls.builder import AnswerBuilder, build_answer
    from athena.calls.tracker import ToolCallTracker
    from athena.formats.detect import detect_format
    from athena.model.events import (
        Done,
        Error,
        Event,
        KeepAlive,
        Start,
        TextDelta,
        ThinkingDelta,
        ToolCallComplete,
        ToolCallDelta,
        ToolCallStart,
    )
    from athena.parsing import Parsed, Parser, parse, render_calls, render_result, render_tools
    from athena.tool_adapter import AdaptedRequest, ExtractedCalls, ToolAdapter
    from athena.translate import StreamTranslator, Translated, translate_request, translate_response

__version__ = "0.1.0"

__all__ = [
    "AdaptedRequest",
    "AnswerBuilder",
    "Done",
    "Error",
    "Event",
    "ExtractedCalls",
    "KeepAlive",
    "Parsed",
    "Parser",
    "Start",
    "StreamTranslator",
    "TextDelta",
    "ThinkingDelta",
    "ToolAdapter",
    "ToolCallComplete",
    "ToolCallDelta",
    "ToolCallStart",
    "ToolCallTracker",
    "Translated",
    "build_answer",
    "detect_format",
    "errors",
    "parse",
    "parse_batch",
    "render_calls",
    "render_result",
    "render_tools",
    "translate_request",
    "translate_response",
]

_HOMES = {
    "AdaptedRequest": "tool_adapter",
    "ExtractedCalls": "tool_adapter",
    "ToolAdapter": "tool_adapter",
    "AnswerBuilder": "calls.builder",
    "Done": "model.events",
    "Error": "model.events",
    "Event": "model.events",
    "KeepAlive": "model.events",
    "Parsed": "parsing",
    "Parser": "parsing",
    "Start": "model.events",
    "StreamTranslator": "translate",
    "TextDelta": "model.events",
    "ThinkingDelta": "model.events",
    "ToolCallComplete": "model.events",
    "ToolCallDelta": "model.events",
    "ToolCallStart": "model.events",
    "ToolCallTracker": "calls.tracker",
    "Translated": "translate",
    "build_answer": "calls.builder",
    "detect_format": "formats.detect",
    "errors": "",
    "parse": "parsing",
    "parse_batch": "batch",
    "render_calls": "parsing",
    "render_result": "parsing",
    "render_tools": "parsing",
    "translate_request": "translate",
    "translate_response": "translate",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'athena' has no attribute {name!r}")
    from importlib import import_module

    if not home:
        return import_module(f"athena.{name}")
    value: object = getattr(import_module(f"athena.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Athena makes tool calling work between any client and any model.

Everything listed here is public; the rest is not. Heavy parts load on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from athena import errors
    from athena.batch import map_batches, parse_batch
    from athena.calls.builder import AnswerBuilder, fold
    from athena.calls.tracker import ToolCallTracker
    from athena.formats.declared.description import FormatDescription
    from athena.formats.machine.detect import detect_format
    from athena.model.answer import Answer
    from athena.model.events import (
        Done,
        Error,
        Event,
        Finish,
        KeepAlive,
        Start,
        TextDelta,
        ThinkingDelta,
        ToolCallComplete,
        ToolCallDelta,
        ToolCallStart,
    )
    from athena.parsing import Parsed, Parser, parse, render_calls, render_result, render_tools
    from athena.shells.templates.learn import learn_format, load_format
    from athena.streams.reading import EventStream, events_from
    from athena.tool_adapter import AdaptedRequest, ExtractedCalls, ToolAdapter
    from athena.translate import (
        StreamEncoder,
        StreamTranslator,
        Translated,
        encode_answer,
        translate_request,
        translate_response,
    )

__version__ = "0.2.0"

__all__ = [
    "AdaptedRequest",
    "Answer",
    "AnswerBuilder",
    "Done",
    "Error",
    "Event",
    "EventStream",
    "ExtractedCalls",
    "Finish",
    "FormatDescription",
    "KeepAlive",
    "Parsed",
    "Parser",
    "Start",
    "StreamEncoder",
    "StreamTranslator",
    "TextDelta",
    "ThinkingDelta",
    "ToolAdapter",
    "ToolCallComplete",
    "ToolCallDelta",
    "ToolCallStart",
    "ToolCallTracker",
    "Translated",
    "detect_format",
    "encode_answer",
    "errors",
    "events_from",
    "fold",
    "learn_format",
    "load_format",
    "map_batches",
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
    "Answer": "model.answer",
    "AnswerBuilder": "calls.builder",
    "Done": "model.events",
    "Error": "model.events",
    "Event": "model.events",
    "EventStream": "streams.reading",
    "Finish": "model.events",
    "FormatDescription": "formats.declared.description",
    "KeepAlive": "model.events",
    "Parsed": "parsing",
    "Parser": "parsing",
    "Start": "model.events",
    "StreamEncoder": "translate",
    "StreamTranslator": "translate",
    "TextDelta": "model.events",
    "ThinkingDelta": "model.events",
    "ToolCallComplete": "model.events",
    "ToolCallDelta": "model.events",
    "ToolCallStart": "model.events",
    "ToolCallTracker": "calls.tracker",
    "Translated": "translate",
    "detect_format": "formats.machine.detect",
    "encode_answer": "translate",
    "errors": "",
    "events_from": "streams.reading",
    "fold": "calls.builder",
    "learn_format": "shells.templates.learn",
    "load_format": "shells.templates.learn",
    "map_batches": "batch",
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

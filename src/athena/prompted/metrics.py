"""What happened, as values for a metrics sink. Names and sizes only, never contents.

Times are seconds of the clock that was handed in, 0 without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec


class Performance(msgspec.Struct, frozen=True):
    """What it cost: seconds in all, the most characters held at once, and seconds by part of the work."""

    duration: float = 0.0
    held: int = 0
    parts: dict[str, float] = {}


class ToolTransformation(msgspec.Struct, frozen=True, tag="tool_transformation", tag_field="event"):
    """A request's tools became text."""

    tool_count: int
    tool_names: tuple[str, ...]
    prompt_length: int
    performance: Performance = Performance()


class FunctionCallDetection(msgspec.Struct, frozen=True, tag="function_call_detection", tag_field="event"):
    """An answer was read to its end."""

    function_count: int
    function_names: tuple[str, ...]
    content_length: int
    json_candidates: int
    streaming: bool
    performance: Performance = Performance()


MetricsEvent: TypeAlias = ToolTransformation | FunctionCallDetection
MetricsSink: TypeAlias = Callable[[MetricsEvent], object]


def report(sink: MetricsSink | None, event: MetricsEvent, on_failure: Callable[[Exception], object] | None = None) -> None:
    """Hand an event to a sink. A sink that raises has no effect on the request; `on_failure` may log it."""
    if sink is None:
        return
    try:
        sink(event)
    except Exception as error:  # a caller's code: whatever it raises is not ours to pass on
        if on_failure is not None:
            try:
                on_failure(error)
            except Exception:  # nor is what the reporter raises
                return

"""Steps: the bytecode instructions Python executes, counted, not timed. A busy machine does not change them.

Compiled code (msgspec, httptools, our own modules under mypyc) does its work without any.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(function: Callable[[], object]) -> int:
    """Of one call, once the caches are warm."""
    function()
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return steps

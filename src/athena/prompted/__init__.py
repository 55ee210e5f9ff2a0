"""Tools for models that have none: taught in the prompt, read from the text (source system C).

`render` turns a request's tools and tool history into text, `scanner` finds calls in an answer, `policy` says when enough was
found, `stage` puts the last two between an upstream's events and the client's. Pure, like every room of the core: the clock
is handed in.
"""

from __future__ import annotations

from athena.prompted.options import PromptedOptions, checked_options
from athena.prompted.policy import POLICIES, StreamPolicy
from athena.prompted.render import PromptPlan, Rendered, render_request
from athena.prompted.stage import Correction, PromptedStage

__all__ = [
    "POLICIES",
    "Correction",
    "PromptPlan",
    "PromptedOptions",
    "PromptedStage",
    "Rendered",
    "StreamPolicy",
    "checked_options",
    "render_request",
]

"""How tools are taught and read: one frozen value per route or adapter, checked whole.

Zero means "no bound" for the counts, and "structure only" for the window (requirements C13, C14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from athena.errors import ConfigProblem
from athena.formats import ALIASES, format_names
from athena.formats.machine.policies import EchoRule, RepairLevel
from athena.prompted.errors import ToolConfigurationError
from athena.prompted.policy import POLICIES
from athena.prompted.templates import PLACEHOLDER, template_problem

_COUNTS = (
    "window_ms", "max_calls", "collect_bytes", "stream_buffer_bytes", "early_detection_chars", "max_tools", "name_chars",
    "prompt_bytes",
)  # fmt: skip
_CHOICES: dict[str, tuple[str, ...]] = {
    "results": ("inline", "prompt"),
    "invalid": ("pass", "text", "error"),
    "repair": ("off", "syntax", "schema"),
    "echo": ("text", "error", "allow"),
}


class PromptedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of one route. The defaults are the gateway's."""

    policy: str = "collect_then_stop"
    style: str = "json"
    """What the model is taught to write: `json`, a text format's id, `auto` (its own family's format where that is known, else
    `json`), or the name of a parser of `parsers`."""
    template: str | None = None
    """Own instruction text with exactly one %s, where the tools go."""
    results: Literal["inline", "prompt"] = "inline"
    """Tool results stand in the conversation as user text, or are listed in the instructions."""
    system_messages: bool = False
    """The model takes a system message. False: without one in the request, instructions go before the first user text."""
    window_ms: int = 200
    """How long to wait for another call when nothing is being read; 0: only the structure of the answer decides."""
    max_calls: int = 8
    collect_bytes: int = 1024 * 1024
    """One JSON value read as calls; longer, it is text."""
    stream_buffer_bytes: int = 10 * 1024 * 1024
    """Everything held back for one choice; then it is shown as text."""
    early_detection_chars: int = 0
    """A preface of at most so many characters waits, and is dropped when a call follows it."""
    cancel_upstream: bool = True
    """End the upstream's answer once the policy has what it wants. False: read on for its token counts."""
    reask: bool = False
    """Ask once more, explaining, when a call is unusable or a required one is missing and nothing was shown yet."""
    invalid: Literal["pass", "text", "error"] = "pass"
    """A call whose arguments break the tool's schema: pass it on with a note (the agent tells the model), leave it as text, or
    fail."""
    repair: RepairLevel = "syntax"
    echo: EchoRule = "text"
    """A call that the model quotes from the request: leave it as the text it is, fail, or let it be a call."""
    max_tools: int = 1000
    name_chars: int = 64
    prompt_bytes: int = 1024 * 1024
    parsers: Mapping[str, Callable[..., Any]] = {}
    """Custom answer parsers by name: called with the tools (a `ToolBook`), they return a `readers.Reader`."""


def checked_options(options: PromptedOptions) -> tuple[PromptedOptions, tuple[ConfigProblem, ...]]:
    """The options ready for use, and warnings. Raises ToolConfigurationError with everything that is wrong at once."""
    problems: list[ConfigProblem] = []
    changes: dict[str, int] = {}
    for name in _COUNTS:
        value = getattr(options, name)
        if type(value) is not int:
            problems.append(ConfigProblem("must be a whole number", key=name))
        elif value < 0:
            problems.append(ConfigProblem("negative, taken as 0", key=name, fatal=False))
            changes[name] = 0
    if options.policy not in POLICIES:
        problems.append(_unknown("policy", options.policy, tuple(POLICIES)))
    for name, known in _CHOICES.items():
        if getattr(options, name) not in known:
            problems.append(_unknown(name, getattr(options, name), known))
    styles = ("json", "auto", *ALIASES, *format_names(), *options.parsers)
    if options.style not in styles:
        problems.append(_unknown("style", options.style, styles))
    factories: Mapping[str, object] = options.parsers
    for name, factory in factories.items():
        if not callable(factory):
            problems.append(ConfigProblem("must be callable", key=f"parsers.{name}"))
        if name in ("json", "auto", *ALIASES, *format_names()):
            problems.append(ConfigProblem("a built-in style has this name", key=f"parsers.{name}"))
    trouble = template_problem(options.template) if options.template is not None else ""
    if trouble:
        problems.append(ConfigProblem(trouble, key="template", remedy=f"{PLACEHOLDER} is where the tools go"))
    if any(problem.fatal for problem in problems):
        raise ToolConfigurationError.of(tuple(problems))
    return (msgspec.structs.replace(options, **changes) if changes else options), tuple(problems)


def _unknown(key: str, value: object, known: tuple[str, ...]) -> ConfigProblem:
    return ConfigProblem(f"{value!r} is unknown", key=key, remedy="known: " + ", ".join(known))

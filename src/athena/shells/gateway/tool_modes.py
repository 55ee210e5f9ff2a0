"""Which models take tools, as far as was learnt: `tools: auto` tries them natively and remembers a refusal.

No upstream has a machine code for "this model takes no tools". What is learnt changes how everybody is served, so it needs
evidence that no single request can make up:

- The refusal names tools as what is not supported. An error about one tool, about a call in the history or about the tool
  choice is the fault of that request.
- The same request, with its tools in the prompt, succeeds.
- The next request with tools is refused in the same way, and succeeds without them.

    nothing known --confirmed refusal--> DOUBTED --confirmed refusal--> REFUSING
    after `keep_s` seconds a DOUBTED model is forgotten, and a REFUSING one is DOUBTED: one refusal more confirms it again

Until a model counts as REFUSING, each refused request is asked again with its tools in the prompt, and others are not touched.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from enum import Enum, auto

from athena.exchange import Route
from athena.model.events import Error
from athena.model.request import Request
from athena.shells.gateway.targets import Target

LOG = logging.getLogger("athena")
_REFUSALS = frozenset((400, 404, 405, 422, 500, 501))
_REMEMBERED = 4096

_TOOLS = r"(?:tools?|functions?|(?:tool|function)[ _-]?(?:use|call(?:s|ing)?))"
_NEGATED = (
    r"(?:\bnot|n['’]t|\bnever) (?:currently |yet )?(?:be )?"
    r"(?:support(?:ed)?|enabled|available|implemented|accept(?:ed)?|allowed|permitted)"
)
_UNKNOWN = (
    r"(?:unknown|unrecognized|unexpected|extra|additional|invalid) (?:request )?"
    r"(?:parameter|field|argument|key|property|input)s?"
)
_NAMED_REFUSALS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NEGATED}[^.;]{{0,40}}\b{_TOOLS}\b",
        rf"\b{_TOOLS}\b[^.;]{{0,40}}(?:{_NEGATED}|\bunsupported\b|\bdisabled\b)",
        rf"\bunsupported\b[^.;]{{0,40}}\b{_TOOLS}\b",
        rf"\bno endpoints? found that supports? {_TOOLS}",
        rf"\b{_UNKNOWN}(?: \w+)?[:=]? *['\"`]?{_TOOLS}\b",
        r"--jinja\b",
        r"--enable-auto-tool-choice\b",
    )
)
"""How servers say that a model, or they themselves, take no tools."""
_ABOUT_CHOICE = re.compile(r"tool[ _]?choice", re.IGNORECASE)
_FLAGS = ("--jinja", "--enable-auto-tool-choice")


def names_tools(error: Error) -> bool:
    """Does this error say that tools are not supported, rather than that something about these tools is wrong?"""
    message = error.message[:4000]
    if error.param is not None and error.param.startswith(("tools[", "tools.", "functions[", "messages", "input", "contents")):
        return False
    if _ABOUT_CHOICE.search(message) and not any(flag in message for flag in _FLAGS):
        return False
    return any(pattern.search(message) for pattern in _NAMED_REFUSALS)


class _State(Enum):
    DOUBTED = auto()
    REFUSING = auto()


class ToolModes:
    """What one gateway learnt since its configuration was loaded. `clock` tells seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        on_learnt: Callable[[str], None] = lambda upstream: None,
        *,
        keep_s: float = 3600.0,
    ) -> None:
        self._clock = clock
        self._on_learnt = on_learnt
        self._keep_s = keep_s
        self._known: dict[tuple[str, str], tuple[_State, float]] = {}

    def route(self, target: Target) -> Route:
        """How this target is to be asked now."""
        if target.prompted_route is not None and self._state(target) is _State.REFUSING:
            return target.prompted_route
        return target.route

    def second_route(self, target: Target, route: Route, request: Request, error: Error | None) -> Route | None:
        """How to ask once more with the tools in the prompt, where this error refused them as such; else None."""
        if target.prompted_route is None or route is target.prompted_route or not request.tools or error is None:
            return None
        if error.status not in _REFUSALS or error.kind in ("context_length", "content_policy") or not names_tools(error):
            return None
        return target.prompted_route

    def confirm(self, target: Target) -> None:
        """A request that was refused for its tools succeeded with them in its prompt."""
        key = (target.upstream, target.model)
        now = self._clock()
        before = self._state(target)
        if before is None:
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = (_State.DOUBTED, now + self._keep_s)
        elif before is _State.DOUBTED:
            self._known[key] = (_State.REFUSING, now + self._keep_s)
            self._on_learnt(target.upstream)
            fields = {"upstream": target.upstream, "upstream_model": target.model, "tools": "prompted"}
            LOG.warning(
                "%s refuses tools for %s: they go into the prompt for %g seconds; `tools: prompted` says so for good",
                target.upstream,
                target.model,
                self._keep_s,
                extra={"fields": fields},
            )

    @property
    def refusing(self) -> int:
        """How many models are asked by prompt because they refused tools."""
        now = self._clock()
        return sum(state is _State.REFUSING and until > now for state, until in self._known.values())

    def _state(self, target: Target) -> _State | None:
        key = (target.upstream, target.model)
        known = self._known.get(key)
        if known is None:
            return None
        state, until = known
        now = self._clock()
        if now < until:
            return state
        if state is _State.REFUSING and now < until + self._keep_s:
            return _State.DOUBTED
        del self._known[key]
        return None

"""Which models take tools, as far as was learnt: `tools: auto` tries them natively and remembers a refusal.

No upstream has a machine code for "this model takes no tools", so a refusal is a client-error status on a request with tools
whose message speaks of tools, and that does not complain about one of them. It is believed only when the same request, with
its tools in the prompt, then succeeds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from athena.exchange import Route
from athena.model.events import Error
from athena.model.request import Request
from athena.shells.gateway.targets import Target

LOG = logging.getLogger("athena")
_REFUSALS = frozenset((400, 404, 405, 422, 500, 501))
_WORDS = ("tool", "function call")
_REMEMBERED = 4096


class ToolModes:
    """What one gateway learnt since its configuration was loaded."""

    def __init__(self, on_switch: Callable[[str], None] = lambda upstream: None) -> None:
        self._on_switch = on_switch
        self._prompted: set[tuple[str, str]] = set()

    def route(self, target: Target) -> Route:
        """How this target is to be asked now."""
        if target.prompted_route is not None and (target.upstream, target.model) in self._prompted:
            return target.prompted_route
        return target.route

    def may_switch(self, target: Target, request: Request, error: Error | None) -> bool:
        """Did the upstream refuse the tools themselves, and may they be put in the prompt instead?"""
        if target.prompted_route is None or not request.tools or error is None or error.status not in _REFUSALS:
            return False
        if self.route(target) is not target.route or error.kind in ("context_length", "content_policy"):
            return False
        if error.param is not None and error.param.startswith(("tools[", "tools.", "functions[")):
            return False
        message = error.message.lower()
        return any(word in message for word in _WORDS)

    def switch(self, target: Target) -> None:
        """Ask with prompted tools from now on."""
        if len(self._prompted) < _REMEMBERED:
            self._prompted.add((target.upstream, target.model))

    def confirm(self, target: Target, *, ok: bool) -> None:
        """The first answer after a switch: was it the tools?"""
        if ok:
            self._on_switch(target.upstream)
            fields = {"upstream": target.upstream, "upstream_model": target.model, "tools": "prompted"}
            LOG.warning(
                "%s refuses tools for %s: they go into the prompt from now on; `tools: prompted` says so at once",
                target.upstream,
                target.model,
                extra={"fields": fields},
            )
        else:
            self._prompted.discard((target.upstream, target.model))

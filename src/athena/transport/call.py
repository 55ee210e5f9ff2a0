"""One request of an SDK on its way, without IO: which target is asked next, and when an answer is what the SDK gets.

The rules are the gateway's (`reliability.md` 7), but for retries, which are the SDK's. Until the SDK has seen anything, a
target that is not there or not able makes room for the next one, an upstream that refuses tools is asked again with the tools
in its prompt (`tools: auto`), and a prompted model may be asked once more (`reask`). A driver does the waiting:

    call.request()            what to send now, and where
    call.begin(...)           the upstream's status and headers
    call.data / call.end      its body; each gives a step
    call.settled(step)        is this for the SDK? If not, the answer is dropped and `request()` says what to send instead
    call.unreachable(...)     the network failed before the SDK saw anything: is there somebody else to ask?
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from athena.errors import ClientError, UpstreamClosed
from athena.exchange import Exchange, Route, Step, warnings_header
from athena.model.request import Request
from athena.shells.gateway.retries import may_move_on, with_relative_wait
from athena.shells.gateway.targets import Target, fitted_request, near_size_limit

if TYPE_CHECKING:
    from athena.transport.engine import Engine

_PASSED_ON = ("request-id", "x-request-id")


class Outgoing(NamedTuple):
    """A request to an upstream."""

    url: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    target: Target


class Call:
    """What an SDK asked for, until the last byte of its answer."""

    def __init__(self, engine: Engine, request: Request, *, headers: Mapping[str, str], key: str | None, array: bool) -> None:
        self._engine = engine
        self._asked = request
        self._headers = headers
        self._key = key
        self._array = array
        self._id = "req_" + secrets.token_hex(12)
        self._waiting = list(engine.targets(request.model))
        self._target = self._waiting.pop(0)
        self._refused: tuple[Exchange, Step] | None = None
        """The first answer of an upstream that refused the request's shape, while it is asked again without that."""
        self._answer_headers: dict[str, str] = {}
        self._warnings: list[str] = []
        self._trial = engine.learnt.trial(self._target, request)
        self._open(self._trial.route)

    # -- what to send ------------------------------------------------------------------------------------------------------

    def request(self) -> Outgoing:
        """What to send now."""
        target, call = self._target, self.exchange.call
        headers = target.headers(call.headers, self._asked, self._headers, self._key)
        return Outgoing(f"{target.origin}{target.path(call.path)}", headers, call.body, target)

    def _open(self, route: Route) -> None:
        target = self._target
        request = fitted_request(self._asked, target)
        exchange = Exchange(request, route, self._engine.options(request, target, self._id, array=self._array))
        warning = near_size_limit(exchange, target)
        self._warnings = [warning] if warning else []
        self.exchange = exchange

    # -- what the upstream says ----------------------------------------------------------------------------------------------

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """The upstream's status and headers (lower-case names)."""
        self._answer_headers = {name: headers[name] for name in _PASSED_ON if name in headers}
        if status >= 400 and "x-should-retry" in headers:
            self._answer_headers["x-should-retry"] = headers["x-should-retry"]
        self.exchange.upstream_head(status, with_relative_wait(headers, time.time()))

    def data(self, data: bytes) -> Step:
        """The next bytes of its body."""
        step = self.exchange.upstream_data(data, time.monotonic())
        if step.done and self.exchange.outcome == "ok":
            self._engine.learn(self.exchange, self._target)
        return step

    def end(self, failure: Exception | None = None) -> Step:
        """Its body ended; by a `failure` of the network the SDK must learn in its own words, not as a bare cut."""
        cause = UpstreamClosed(f"the connection to the upstream broke: {failure}", code="upstream_reset") if failure else None
        step = self.exchange.upstream_end(cause)
        if self.exchange.outcome == "ok":
            self._engine.learn(self.exchange, self._target)
        return step

    @property
    def has_said_all(self) -> bool:
        """Has the upstream said why it ended, so that only the end itself is missing?"""
        return self.exchange.finished

    @property
    def answered(self) -> bool:
        """Did the upstream itself end its answer? Then its connection may be used again."""
        return self.exchange.outcome == "ok" and self.exchange.prompted is None

    # -- what follows --------------------------------------------------------------------------------------------------------

    def settled(self, step: Step) -> Step | None:
        """The step the SDK is to see first; None: there is another request to make."""
        if step.again is not None:
            return None
        error = self.exchange.error
        if error is None:
            self._trial.answered()
        elif self._trial.corrects(self.exchange):
            self._refused = self._refused or (self.exchange, step)
            self._open(self._trial.route)
            return None
        elif self._refused is not None and self._trial.was_in_vain(self.exchange):
            # It was not what was left out after all: the first error is the one to tell.
            self.exchange, step = self._refused
            error = self.exchange.error
        self._refused = None
        if error is None or not may_move_on(error):
            return step
        return None if self._next_target() else step

    def unreachable(self) -> bool:
        """The network failed, and the SDK has seen nothing: is another target to be asked?"""
        self._refused = None
        return self._next_target()

    def _next_target(self) -> bool:
        while self._waiting:
            self._target = self._waiting.pop(0)
            try:
                self._trial = self._engine.learnt.trial(self._target, self._asked)
                self._open(self._trial.route)
            except ClientError:
                # A fallback that can not be asked this is none; the failure that led here is the one to tell.
                continue
            return True
        return False

    def head(self, step: Step) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer that begins with this step."""
        assert step.head is not None
        headers = {"request-id": self._id, "x-request-id": self._id, **step.head.headers, **self._answer_headers}
        warnings = [*self._warnings, *([warnings_header(self.exchange.losses)] if self.exchange.losses else [])]
        if warnings:
            headers["x-athena-warnings"] = "; ".join(warnings)
        return step.head.status, headers

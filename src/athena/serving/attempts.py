"""Which target of a request is asked, in which order, and whether the same one is asked again."""

from __future__ import annotations

from collections.abc import Mapping

from athena.model.events import Error
from athena.model.request import Request
from athena.serving.choosing import TargetChoice, TargetWish
from athena.serving.record import RequestRecord
from athena.serving.retries import is_own_limit, is_retryable, pause_before
from athena.serving.sessions import session_of
from athena.serving.shared import Shared
from athena.serving.targets import Target


class Attempts:
    """Goes through the targets of one request. `target` is the one being asked, after `choose` and the first `advance`."""

    target: Target
    """The one that is being asked."""
    request_sent = False
    """Did the upstream get the present request, as far as is known?"""
    retry_is_useless = False
    """The upstream said so."""
    _wish: TargetWish | None = None
    _choice: TargetChoice | None = None
    """What was chosen for this request, where there was a choice."""
    _position = -1
    _retries = 0
    """Of the present target."""
    _waited = 0.0

    def __init__(self, shared: Shared, targets: tuple[Target, ...], record: RequestRecord) -> None:
        self.targets = targets
        self._shared = shared
        self._record = record

    @property
    def has_more(self) -> bool:
        """Is there a target after this one?"""
        return self._position + 1 < len(self.targets)

    def choose(self, request: Request, headers: Mapping[str, str]) -> None:
        """Put the targets in order, without those whose upstream is down. Raises where none is left."""
        shared, targets = self._shared, self.targets
        shared.retry_budget.request()
        if len(targets) > 1:
            targets = self._ordered(request, headers)
        self.targets = tuple(shared.health.candidates(targets))

    def _ordered(self, request: Request, headers: Mapping[str, str]) -> tuple[Target, ...]:
        chooser, record = self._shared.chooser, self._record
        if chooser is None:
            return self.targets
        wish = self._wish = TargetWish(
            request_id=record.request_id,
            model=request.model,
            client=record.key,
            session=session_of(headers, request),
            has_tools=bool(request.tools),
            streamed=request.stream,
        )
        choice = self._choice = chooser.choose(self.targets, wish)
        record.chosen_by = choice.why
        return choice.targets

    def advance(self) -> bool:
        """Go to the next target that may be asked; False where there is none."""
        targets, position = self.targets, self._position + 1
        last = len(targets) - 1
        while position <= last:
            target = targets[position]
            if position == last or self._shared.health.is_up(target.upstream):
                self._position, self._retries, self.target = position, 0, target
                return True
            position += 1  # another request is probing that one by now
        return False

    def begin(self) -> None:
        """A request is about to be made for the present target: nothing is known of it yet."""
        self.request_sent = self.retry_is_useless = False

    def pause_after(self, error: Error) -> float | None:
        """Seconds after which the present target is asked again; None: it is not."""
        retries = self._shared.retries
        delay = pause_before(error, self._retries, self._record.request_id)
        if not (
            self._retries < retries.attempts
            and not self.retry_is_useless
            and is_retryable(error, request_sent=self.request_sent, after_timeout=retries.after_timeout)
            and self._waited + delay <= retries.wait_s
            and self._shared.retry_budget.take()
        ):
            return None
        self._retries += 1
        self._waited += delay
        return delay

    def answers(self) -> None:
        """The present target answers: the session's later requests go to it."""
        if self._choice is not None and self._wish is not None and self._shared.chooser is not None:
            self._shared.chooser.served(self.target, self._choice, self._wish)

    def is_final(self, error: Error | None) -> bool:
        """Is a client's own retry of no use? We retried already, the upstream said so, or its key is wrong."""
        if is_own_limit(error):
            return False
        return self._record.attempts > 1 or self.retry_is_useless or (error is not None and error.code == "upstream_auth")

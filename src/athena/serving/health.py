"""Which upstreams are asked, and whether a retry is still affordable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from athena.errors import AthenaError
from athena.serving.breaker import Breaker, BreakerState, Visit
from athena.serving.settings import Health, Retries
from athena.serving.targets import Target

OnChange = Callable[[str, BreakerState, str], None]
"""Told of an upstream's new state, and why."""


class UpstreamHealth:
    """One circuit breaker for each upstream."""

    def __init__(
        self, settings: Health, clock: Callable[[], float], on_change: OnChange = lambda upstream, state, why: None
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._on_change = on_change
        self._breakers: dict[str, Breaker] = {}

    def breaker(self, upstream: str) -> Breaker:
        known = self._breakers.get(upstream)
        if known is None:

            def tell(state: BreakerState, why: str) -> None:
                self._on_change(upstream, state, why)

            known = self._breakers[upstream] = Breaker(self.settings, self._clock, tell)
        return known

    def is_up(self, upstream: str) -> bool:
        """May a request go there while another target exists?"""
        return self.breaker(upstream).is_up

    def visit(self, upstream: str) -> Visit:
        """A request goes there."""
        return self.breaker(upstream).begin()

    def candidates(self, targets: Sequence[Target]) -> Sequence[Target]:
        """The targets to try, in their order: those that are up. None is: the first one, or with `fail_fast` an error."""
        may_fail = self.settings.fail_fast
        if len(targets) == 1 and not may_fail:
            return targets
        up = [target for target in targets if self.is_up(target.upstream)]
        if up:
            return up
        if not may_fail:
            return targets[:1]
        names = ", ".join(dict.fromkeys(target.upstream for target in targets))
        raise AthenaError(
            f"no upstream for this model is up: {names} (health.fail_fast)",
            kind="overloaded",
            code="upstream_down",
            retry_after=max(1.0, min(self.breaker(target.upstream).rests_for for target in targets)),
        )

    def keep(self, upstreams: Iterable[str]) -> None:
        """The configuration was loaded anew: forget upstreams that are not in it."""
        known = set(upstreams)
        for name in [name for name in self._breakers if name not in known]:
            del self._breakers[name]


class RetryBudget:
    """Retries as a share of traffic: a failing upstream must not be hit several times as hard as a healthy one.

    Every request adds its share, every retry takes one; a few are always in hand so that a quiet gateway retries too.
    """

    _RESERVE = 10.0

    def __init__(self, settings: Retries) -> None:
        self._share = settings.share
        self._tokens = self._RESERVE

    def request(self) -> None:
        """Count a first attempt; retries are a share of these."""
        self._tokens = min(self._tokens + self._share, 100 * self._RESERVE)

    def take(self) -> bool:
        """May one more retry be made?"""
        if self._share <= 0 or self._tokens < 1:
            return False
        self._tokens -= 1
        return True

"""Which upstreams rest, and whether a retry is still affordable (`reliability.md` 7)."""

from __future__ import annotations

from collections.abc import Callable

from athena.shells.config.model import Health, Retries


class UpstreamHealth:
    """Failures in a row put an upstream to rest for a while; one success wakes it."""

    def __init__(self, settings: Health, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def is_up(self, upstream: str) -> bool:
        """May a request go there while another target exists?"""
        return self._clock() >= self._until.get(upstream, 0.0)

    def succeeded(self, upstream: str) -> None:
        """It answered."""
        self._failures.pop(upstream, None)
        self._until.pop(upstream, None)

    def failed(self, upstream: str) -> None:
        """It did not."""
        count = self._failures[upstream] = self._failures.get(upstream, 0) + 1
        if self._settings.failures and count >= self._settings.failures:
            self._until[upstream] = self._clock() + self._settings.cooldown_s


class RetryBudget:
    """Retries as a share of traffic: a failing upstream must not be hit several times as hard as a healthy one.

    Every request adds its share, every retry takes one; a few are always in hand so that a quiet gateway retries too.
    """

    _RESERVE = 10.0

    def __init__(self, settings: Retries) -> None:
        self._share = settings.share
        self._tokens = self._RESERVE

    def request(self) -> None:
        """A first attempt was made."""
        self._tokens = min(self._tokens + self._share, 100 * self._RESERVE)

    def take(self) -> bool:
        """May one more retry be made?"""
        if self._share <= 0 or self._tokens < 1:
            return False
        self._tokens -= 1
        return True

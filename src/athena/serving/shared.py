"""What all requests of one gateway or transport share: what may be set, and what was learnt about upstreams so far."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from athena.exchange import Options
from athena.model.request import Request
from athena.opaque import Envelope, OpaqueStore
from athena.serving.budget import Budget
from athena.serving.choosing import Chooser
from athena.serving.clock import ClientLimits
from athena.serving.health import RetryBudget, UpstreamHealth
from athena.serving.learning import Learnt
from athena.serving.record import RequestRecord
from athena.serving.settings import Retries
from athena.serving.tap import EndTap, Tap, Watcher
from athena.serving.targets import Target
from athena.serving.tokens import Measured, TokenCounter


class AnswerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the way in which answers are written for clients."""

    stream_error_stop: bool = False
    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    hide_auth_errors: bool = False
    pass_junk: bool = False
    stop_retries: bool = True
    """Tell a client that its own retry is of no use after ours. False: the client's retries are the only ones."""


_TARGETS_KEPT = 256


def _raise(request_id: str, error: Exception) -> None:
    raise error


class Shared:
    """One for each configuration: a request keeps the one it began with."""

    def __init__(
        self,
        *,
        retries: Retries,
        learnt: Learnt,
        tokens: TokenCounter,
        envelope: Envelope,
        store: OpaqueStore | None,
        seal: Callable[[str, str], str] | None = None,
        answers: AnswerSettings,
        memory: Budget,
        health: UpstreamHealth,
        retry_budget: RetryBudget,
        chooser: Chooser | None = None,
        client_limits: ClientLimits | None = None,
        watchers: tuple[Watcher, ...] = (),
        wall_clock: Callable[[], float],
        tap_failed: Callable[[str, Exception], None] = _raise,
    ) -> None:
        """`seal` encrypts summaries of conversations for a key's name. `chooser` orders the targets of a request; None: they
        are asked as given.

        `tap_failed` gets a request's id and what a tap raised; the answer goes on unless it raises as well.
        """
        self.retries = retries
        self.learnt = learnt
        self.tokens = tokens
        self.memory = memory
        self.health = health
        self.retry_budget = retry_budget
        self.chooser = chooser
        self.client_limits = client_limits or ClientLimits()
        self.watchers = watchers
        self.wall_clock = wall_clock
        self.tap_failed = tap_failed
        self._envelope = envelope
        self._store = store
        self._seal = seal
        self.answers = answers
        self._options: dict[int, tuple[Target, Options]] = {}
        """What the options of all exchanges with a target have in common, by the target's identity."""

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """All that watch requests."""
        return self._watchers

    @watchers.setter
    def watchers(self, watchers: tuple[Watcher, ...]) -> None:
        self._watchers = watchers
        self.end_taps = tuple(watcher for watcher in watchers if isinstance(watcher, EndTap))
        """Told the end of every request, before all others."""
        self._asked_watchers = tuple(watcher for watcher in watchers if not isinstance(watcher, EndTap))

    @property
    def wants_bodies(self) -> bool:
        """Does anybody want to see the bodies of clients' requests?"""
        for watcher in self._asked_watchers:  # noqa: SIM110  # faster than `any` here
            if watcher.wants_bodies():
                return True
        return False

    def taps(self, record: RequestRecord, request: Request, key: str | None) -> tuple[Tap, ...]:
        """The taps that watch this request, beside those that are told of its end only."""
        found: list[Tap] = []
        for watcher in self._asked_watchers:
            try:
                tap = watcher.watch(record, request, key)
            except Exception as error:
                self.tap_failed(record.request_id, error)
                continue
            if tap is not None:
                found.append(tap)
        return tuple(found)

    def options(
        self, record: RequestRecord, request: Request, target: Target, measured: Measured | None, *, array: bool
    ) -> Options:
        """The options of an exchange with this target; `measured` is what the request measures, if that is known."""
        known = self._options.get(id(target))
        if known is None or known[0] is not target:
            if len(self._options) >= _TARGETS_KEPT:
                self._options.clear()
            known = self._options[id(target)] = (target, self._common_options(target))
        return replace(
            known[1],
            seed=record.request_id,
            created=int(self.wall_clock()),
            tenant=record.key,
            input_tokens=self.tokens.count(request, target.model, measured) if request.stream else 0,
            array=array,
        )

    def _common_options(self, target: Target) -> Options:
        answers = self.answers
        return Options(
            envelope=self._envelope,
            store=self._store,
            seal=self._seal,
            limits=target.limits,
            stream_error_stop=answers.stream_error_stop,
            reasoning_fields=answers.reasoning_fields,
            hide_auth_errors=answers.hide_auth_errors,
            pass_junk=answers.pass_junk,
            upstream=target.upstream,
            base_url=target.base_url.partition("?")[0],
            dialect=target.dialect,
            secrets=target.secrets,
            has_key=target.has_key,
            retry_after_max=self.retries.retry_after_max_s,
        )

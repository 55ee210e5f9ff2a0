"""The taps of one request, grouped by what they want to see. A tap that raises is dropped and its request goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from athena.dialects.plain_reads import BurstParts, SplicedRecord
from athena.errors import AthenaError
from athena.exchange import Options, Step, UpstreamCall
from athena.model.events import Event
from athena.model.request import Request
from athena.serving.record import RequestRecord
from athena.serving.shared import Shared
from athena.serving.tap import Asked, Tap
from athena.serving.targets import Target

ReadsNoted = Callable[[bytes, bytes, float], None] | list[Any] | None
"""What is told of a read of plain text, what left for it, and when; a list gets them as `Tap.steps` does."""
_NONE: tuple[Tap, ...] = ()


class RequestTaps:
    """`active`, `byte_taps`, `event_taps` and `answer_taps` are for the caller to look at: where one is empty, nothing needs to
    be called."""

    __slots__ = ("_all", "_request_id", "_tap_failed", "active", "answer_taps", "byte_taps", "event_taps")

    def __init__(self, shared: Shared, record: RequestRecord, request: Request, key: str | None) -> None:
        """`key` is the one that the client sent."""
        watching = shared.taps(record, request, key)
        self._all: tuple[Tap, ...] = shared.end_taps + watching
        """Most of them want to know no more than how the request ended."""
        self._tap_failed = shared.tap_failed
        self._request_id = record.request_id
        self.active = self.byte_taps = self.event_taps = self.answer_taps = watching
        if len(watching) == 1:
            # As almost always, and without a list for each group.
            (tap,) = watching
            self.active = _NONE if tap.sees_only_end else watching
            self.byte_taps = self.active if tap.sees_bytes else _NONE
            self.event_taps = self.byte_taps if tap.sees_events else _NONE
            self.answer_taps = self.active if tap.hears_answered else _NONE
        elif watching:
            self.active = tuple([tap for tap in watching if not tap.sees_only_end])
            self.byte_taps = tuple([tap for tap in self.active if tap.sees_bytes])
            self.event_taps = tuple([tap for tap in self.byte_taps if tap.sees_events])
            self.answer_taps = tuple([tap for tap in self.active if tap.hears_answered])

    def tell(self, happened: Callable[[Tap], None]) -> None:
        """Something that seldom happens, told by calling one method of each tap. What every request has is told by a method of
        its own here, without a function that is made for it."""
        for tap in self.active:
            try:
                happened(tap)
            except Exception as error:
                self.drop(tap, error)

    def asked(self, asked: Asked) -> None:
        """The client's request."""
        for tap in self.active:
            try:
                tap.asked(asked)
            except Exception as error:
                self.drop(tap, error)

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        """A request that goes to an upstream."""
        for tap in self.active:
            try:
                tap.sent(target, call, path, headers, now)
            except Exception as error:
                self.drop(tap, error)

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        """An upstream's answer begins."""
        for tap in self.active:
            try:
                tap.upstream_head(status, headers, now)
            except Exception as error:
                self.drop(tap, error)

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        """Its answer ended, or there is none."""
        for tap in self.active:
            try:
                tap.upstream_end(failure, now)
            except Exception as error:
                self.drop(tap, error)

    def answered(self) -> None:
        """Its answer is over, or given up."""
        for tap in self.answer_taps:
            try:
                tap.answered()
            except Exception as error:
                self.drop(tap, error)

    def options(self, options: Options) -> Options:
        """The options of an exchange, with what the taps wrap around them."""
        for tap in self.active:
            try:
                options = tap.options(options)
            except Exception as error:
                self.drop(tap, error)
        return options

    def came(self, data: bytes, now: float) -> None:
        """Bytes of the upstream's answer."""
        for tap in self.byte_taps:
            try:
                tap.upstream_bytes(data, now)
            except Exception as error:
                self.drop(tap, error)

    def burst(self, burst: BurstParts) -> None:
        """Of what those bytes consist."""
        for tap in self.byte_taps:
            try:
                tap.burst(burst)
            except Exception as error:
                self.drop(tap, error)

    def passed(self, data: bytes, output: bytes, now: float, spliced: tuple[bytes, SplicedRecord] | None = None) -> None:
        """A read of plain text, what the client gets for it, and what both follow from where that is shorter."""
        for tap in self.byte_taps:
            try:
                tap.passed(data, output, now, spliced)
            except Exception as error:
                self.drop(tap, error)

    @property
    def reads(self) -> ReadsNoted:
        """Where reads of plain text are told by one who moves the bytes: see `Tap.steps`."""
        taps = self.byte_taps
        if len(taps) == 1 and taps[0].steps is not None:
            return taps[0].steps
        return self.passed if taps else None

    def steps_written(self) -> None:
        """Reads were told by `reads`."""
        for tap in self.byte_taps:
            try:
                tap.steps_written()
            except Exception as error:
                self.drop(tap, error)

    def understood(self, events: tuple[Event, ...]) -> None:
        """The events that were understood of those bytes."""
        for tap in self.event_taps:
            try:
                tap.events(events)
            except Exception as error:
                self.drop(tap, error)

    def left(self, step: Step, now: float) -> None:
        """The bytes that go to the client."""
        head, output = step.head, step.output
        if head is not None:
            for tap in self.active:
                try:
                    tap.client_head(head, now)
                except Exception as error:
                    self.drop(tap, error)
        if output:
            for tap in self.byte_taps:
                try:
                    tap.client_bytes(output, now)
                except Exception as error:
                    self.drop(tap, error)

    def over(self, record: RequestRecord) -> None:
        """The request is over: every tap is told."""
        for tap in self._all:
            try:
                tap.over(record)
            except Exception as error:
                self.drop(tap, error)

    def drop(self, tap: Tap, error: Exception) -> None:
        """A fault of one who watches is no fault of the answer: the request goes on without that tap."""
        self._all = _without(tap, self._all)
        self.active = _without(tap, self.active)
        self.byte_taps = _without(tap, self.byte_taps)
        self.event_taps = _without(tap, self.event_taps)
        self.answer_taps = _without(tap, self.answer_taps)
        self._tap_failed(self._request_id, error)
        try:
            tap.dropped()
        except Exception as further:
            self._tap_failed(self._request_id, further)


def _without(tap: Tap, taps: tuple[Tap, ...]) -> tuple[Tap, ...]:
    return tuple([each for each in taps if each is not tap])

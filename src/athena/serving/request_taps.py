"""The taps of one request, grouped by what they want to see. A tap that raises is dropped and its request goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain, repeat

from athena.dialects.plain_reads import BurstParts, SplicedRecord
from athena.errors import AthenaError
from athena.exchange import Options, Step, UpstreamCall
from athena.model.events import Event
from athena.model.request import Request
from athena.serving.record import RequestRecord
from athena.serving.shared import Shared
from athena.serving.tap import MOST_NOTES, MUCH, Asked, NotingTap, Occurrence, SentCall, Tap
from athena.serving.targets import Target

ReadsNoted = Callable[[bytes, bytes, float], None] | None
"""What is told of a read of plain text, what left for it, and when."""
_NONE: tuple[Tap, ...] = ()
_EMPTY = b""

# To look a member up in its class takes longer than to write it down.
_ATTEMPT, _UPSTREAM_HEAD, _ATTEMPT_END, _CLIENT_HEAD = (
    Occurrence.ATTEMPT, Occurrence.UPSTREAM_HEAD, Occurrence.ATTEMPT_END, Occurrence.CLIENT_HEAD,
)  # fmt: skip


class RequestTaps:
    """`active`, `byte_taps`, `event_taps` and `answer_taps` are for the caller to look at: where one is empty, nothing needs to
    be called."""

    __slots__ = ("_all", "_alone", "_burst", "_request_id", "_tap_failed", "active", "answer_taps", "byte_taps", "event_taps")

    def __init__(self, shared: Shared, record: RequestRecord, request: Request, key: str | None) -> None:
        """`key` is the one that the client sent."""
        watching = shared.taps(record, request, key)
        self._all: tuple[Tap, ...] = shared.end_taps + watching
        """Most of them want to know no more than how the request ended."""
        self._tap_failed = shared.tap_failed
        self._request_id = record.request_id
        self.active = self.byte_taps = self.event_taps = self.answer_taps = watching
        self._alone: NotingTap | None = None
        """The only tap, where notes are written for it."""
        self._burst: BurstParts | None = None
        """Of what the last read consists, where it was noted in parts."""
        if len(watching) == 1:
            # As almost always, and without a list for each group.
            (tap,) = watching
            if isinstance(tap, NotingTap):
                self._alone = tap
                self.event_taps = self.answer_taps = _NONE
                return
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
        alone = self._alone
        if alone is not None:
            alone.asked_as = asked
            alone.size = size = len(asked.body)
            if size > MUCH:
                self._gather()
            return
        for tap in self.active:
            try:
                tap.asked(asked)
            except Exception as error:
                self.drop(tap, error)

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        """A request that goes to an upstream."""
        alone = self._alone
        if alone is not None:
            body = call.body
            sent = SentCall(target, body, path, headers, alone.created, alone.input_tokens)
            alone.notes += (now, _ATTEMPT, sent)
            size = len(body)
            alone.size += size
            if size > MUCH:
                self._gather()
            return
        for tap in self.active:
            try:
                tap.sent(target, call, path, headers, now)
            except Exception as error:
                self.drop(tap, error)

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        """An upstream's answer begins."""
        if self._alone is not None:
            self._alone.notes += (now, _UPSTREAM_HEAD, (status, headers))
            return
        for tap in self.active:
            try:
                tap.upstream_head(status, headers, now)
            except Exception as error:
                self.drop(tap, error)

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        """Its answer ended, or there is none."""
        if self._alone is not None and failure is None:
            self._alone.notes += (now, _ATTEMPT_END, None)
            return
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

    def came(self, data: bytes, now: float, burst: BurstParts | None) -> None:
        """Bytes of the upstream's answer, and of what they consist where texts alone tell some of them."""
        alone = self._alone
        if alone is not None:
            notes, size = alone.notes, len(data)
            if len(notes) >= MOST_NOTES or size > MUCH:
                self._gather()
            self._burst = burst
            notes += (now, data if burst is None else burst.parts, _EMPTY)
            alone.size += size
            return
        for tap in self.byte_taps:
            try:
                tap.upstream_bytes(data, now)
            except Exception as error:
                self.drop(tap, error)

    def passed(self, data: bytes, output: bytes, now: float, spliced: tuple[bytes, SplicedRecord] | None = None) -> None:
        """A read of plain text, what the client gets for it, and what both follow from where that is shorter."""
        alone = self._alone
        if alone is not None:
            notes = alone.notes
            notes += (now, data, output) if spliced is None else (now, *spliced)
            alone.size += len(data)
            if len(notes) >= MOST_NOTES:
                self._gather()
            return
        for tap in self.byte_taps:
            try:
                tap.passed(data, output, now, spliced)
            except Exception as error:
                self.drop(tap, error)

    @property
    def reads(self) -> ReadsNoted:
        """Where reads of plain text are told by one who moves the bytes, before `relayed`; None: that is early enough."""
        return self.passed if self.byte_taps and self._alone is None else None

    def relayed(self, strings: list[bytes], times: list[float], spliced: tuple[bytes, SplicedRecord] | None) -> None:
        """Reads with these texts, as `spliced` has them, came at these times and were passed on."""
        alone = self._alone
        if alone is not None and spliced is not None:
            notes = alone.notes
            notes += chain.from_iterable(zip(times, strings, repeat(spliced[1])))
            alone.size += sum(map(len, strings))
            if len(notes) >= MOST_NOTES:
                self._gather()

    def _gather(self) -> None:
        tap = self._alone
        assert tap is not None
        try:
            tap.gather()
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
        head, output, alone = step.head, step.output, self._alone
        if alone is not None:
            if head is not None:
                alone.notes += (now, _CLIENT_HEAD, head)
            if output:
                burst = self._burst
                if burst is not None and burst.output is output:
                    alone.notes += (now, _EMPTY, burst.parts)
                else:
                    alone.notes += (now, _EMPTY, output)
                    alone.size += len(output)
                self._burst = None
            return
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
        self._alone = None
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

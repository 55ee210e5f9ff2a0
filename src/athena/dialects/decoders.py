"""How answers are read in every dialect: the loop of a streamed decoder, that of a whole one, and what both do with bytes that
are not what they should be.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from athena.calls.tracker import PlainArguments
from athena.dialects.base import DecodeContext
from athena.dialects.plain_reads import PLAIN_BYTES, EachRecord, PlainReader, PlainReads, PlainShape
from athena.errors import AthenaError, UpstreamError, UsageError
from athena.model.events import Done, Error, Event, PlainPiece, Usage, error_event, is_failure
from athena.wire.sse import SseDecoder
from athena.wire.surrogates import without_lone_surrogates

UNREADABLE = (msgspec.ValidationError, msgspec.DecodeError, UnicodeError, RecursionError)
"""What reading bytes can raise that are not what they should be."""


class StreamDecoder(ABC):
    """The loop of a decoder of server-sent events: one subclass hook per record, one for the end.

    Records that are not JSON are dropped (both SDKs would crash on them) and counted in `bad_records`; one
    that began as JSON and is broken was part of the answer, which is then not whole.
    """

    def __init__(self, context: DecodeContext) -> None:
        self.context = context
        self._event_bytes = context.limits.event_bytes
        self._sse = SseDecoder(self._event_bytes)
        self._accepts = context.accepted is not None
        self._plain_reads = PlainReads()

    bad_records = 0
    ended = False
    _brought = 0
    """How many events the last record brought."""

    def feed(self, data: bytes) -> list[Event]:
        out: list[Event] = []
        if self.ended:
            return out
        sse = self._sse
        single = (
            sse.idle
            and data[:6] == b"data: "
            and data.find(b"\n") == len(data) - 2
            and data[-1] == 0x0A
            and b"\r" not in data
            and len(data) <= self._event_bytes
        )
        try:
            # One event in one read is the rule when a model's pace sets the reads.
            before = 0
            for name, payload in (("", data[6:-2]),) if single else sse.feed(data):
                before = len(out)
                try:
                    self.record(name, payload, out)
                except UNREADABLE as error:
                    self._unread(name, payload, error, out)
                else:
                    if self._accepts:
                        self._accept(name, payload, out)
                if self.ended:
                    break  # type: ignore[unreachable]  # the record may have ended it; mypy does not look into calls
            self._brought = len(out) - before
        except AthenaError as error:
            self.fail(out, upstream_fault(error))
        return out

    # -- the short way -------------------------------------------------------------------------------------------------------

    def plain_reader(self, event: PlainPiece, data: bytes) -> PlainReader | None:
        """What tells the text of records that are pieces like the last one and nothing else, until the next `feed`.

        `data` was the last record, and this the last event. None: only `feed` can tell.
        """
        if self.ended or self._brought != 1 or not self._sse.at_rest or self._event_bytes < PLAIN_BYTES:
            return None
        shape = self.plain_shape(event)
        if shape is None:
            return None
        if self._plain_reads.learn(shape, data):
            return self._plain_reads
        return EachRecord(shape, data, is_noted=self.plain_note(event) is not None) if self.reads_each_plain else None

    def plain_arguments(self) -> PlainArguments | None:
        """What watches further pieces of the arguments of the call that goes on, where they would bring nothing else; None:
        every piece has to be fed. A decoder that has it knows the shape of such pieces, too."""
        return None

    def plain_shape(self, event: PlainPiece) -> PlainShape | None:
        """How further pieces like this event look, if in the present state they would bring nothing but their text."""
        return None

    reads_each_plain = False
    """Is the shape's own reader enough, whatever else a record holds beside its text?"""

    def plain_note(self, event: PlainPiece) -> Callable[[str], None] | None:
        """What is to be told of each text that takes the short way; None: nothing."""
        return None

    # -- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> list[Event]:
        """The terminal event, if the records so far had none."""
        out: list[Event] = []
        if self.ended:
            return out
        try:
            for name, payload in self._sse.close():
                try:
                    self.record(name, payload, out)
                except UNREADABLE as error:
                    self._unread(name, payload, error, out)
                else:
                    if self.context.accepted is not None:
                        self._accept(name, payload, out)
                if self._has_ended():
                    return out
            self.end(out)
        except AthenaError as error:
            self.fail(out, upstream_fault(error))
        self.ended = True
        return out

    @property
    def finished(self) -> bool:
        """Has the upstream said why it ended? Dialects with an end of their own need not know."""
        return False

    def _unread(self, name: str, payload: bytes, error: Exception, out: list[Event]) -> None:
        """A record that did not decode: with what UTF-8 cannot hold replaced, it may."""
        mended = mended_json(payload)
        if mended != payload:
            try:
                self.record(name, mended, out)
            except UNREADABLE as second:
                self.bad_record(mended, second, out)
            else:
                if self.context.accepted is not None:
                    self._accept(name, mended, out)
            return
        self.bad_record(payload, error, out)
        if not self.ended and self.context.junk is not None:
            self.context.junk.append((name, payload))

    def _accept(self, name: str, payload: bytes, out: list[Event]) -> None:
        last = out[-1] if out else None
        if self.context.accepted is not None and not is_failure(last):
            self.context.accepted.append((name, payload if payload.isascii() else mended_json(payload)))

    def bad_record(self, payload: bytes, error: Exception, out: list[Event]) -> None:
        """A record that did not decode: skip what never was JSON, fail on JSON that is broken or of the wrong shape."""
        if isinstance(error, msgspec.ValidationError):
            self.fail(out, protocol_error(f"a stream record has the wrong shape: {error}", payload))
        elif payload.lstrip().startswith(b'{"') and not self.finished:
            self.fail(out, protocol_error(f"a stream record is broken: {error}", payload))
        else:
            self.bad_records += 1

    def _has_ended(self) -> bool:
        return self.ended

    def fail(self, out: list[Event], error: Error) -> None:
        """End the answer with an error."""
        out.append(error)
        self.ended = True

    def finish(self, out: list[Event], *dones: Done) -> None:
        out.extend(dones)
        self.ended = True

    @abstractmethod
    def record(self, name: str, payload: bytes, out: list[Event]) -> None:
        """Read one record; every dialect has its own."""

    def end(self, out: list[Event]) -> None:
        """Hook: the bytes ended and no record had ended the answer."""
        self.fail(out, closed_error())


class WholeDecoder(ABC):
    """A decoder of a whole body: the same events, at the end."""

    def __init__(self, context: DecodeContext) -> None:
        self.context = context
        self._body = bytearray()
        self._failed: Error | None = None
        self._closed = False

    def feed(self, data: bytes) -> list[Event]:
        """Nothing yet: a whole answer means nothing before its last byte."""
        if self._closed:
            if self._failed is not None:
                return []
            raise UsageError("feed() after close()")
        self._body += data
        if len(self._body) <= self.context.limits.answer_bytes:
            return []
        # Said at once: an upstream that never stops is not read to the end of its time.
        self._closed, self._failed = True, Error("the answer is larger than the limit", code="answer_too_large")
        self._body.clear()
        return [self._failed]

    def close(self) -> list[Event]:
        if self._closed:
            return []
        self._closed = True
        out: list[Event] = []
        body = bytes(self._body)
        if not body.strip():
            return [closed_error()]
        try:
            try:
                self.whole(body, out)
            except UNREADABLE:
                mended = mended_json(body)
                if mended == body:
                    raise
                out.clear()
                self.whole(mended, out)
                body = mended
        except AthenaError as error:
            out.append(upstream_fault(error))
        except UNREADABLE as error:
            out.append(protocol_error(f"the answer is not what the dialect allows: {error}", body))
        if self.context.accepted is not None:
            self.context.accepted.append(("", body if body.isascii() else mended_json(body)))
        return out

    @property
    def finished(self) -> bool:
        """A whole answer is finished with its last byte."""
        return False

    @abstractmethod
    def whole(self, body: bytes, out: list[Event]) -> None:
        """Read the complete body; every dialect has its own."""


def protocol_error(message: str, payload: bytes = b"") -> Error:
    """The error for an upstream that sent what its dialect does not allow."""
    return Error(message, kind="upstream", code="upstream_protocol", raw=payload[:2000].decode("utf-8", "replace"))


def upstream_fault(error: AthenaError) -> Error:
    """An exception while an answer was read: whatever bound was crossed, the client did not cross it."""
    event = error_event(error)
    return event if isinstance(error, UpstreamError) else msgspec.structs.replace(event, kind="upstream", status=None)


_USAGE = re.compile(
    rb"""(?<!\\)"(?:usage|usage_metadata|usageMetadata|timings)"\s*+:\s*+"""
    rb"\{[^{}]*+(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+){0,16}\}[^{}]*+){0,16}\}"
)
"""An object of token counts, which never nests deeper."""
_ENDLESS = re.compile(rb"-?\d[\d.]*+[eE]\+?+\d{3,}+")


def mended_json(payload: bytes) -> bytes:
    """JSON text that the decoder refused, without what no value can hold.

    Bytes that are no character and halves of surrogate pairs become U+FFFD. Token counts that no number can hold become null:
    they are no reason to throw an answer away. In arguments of calls numbers are never touched.
    """
    text = without_lone_surrogates(payload.decode("utf-8", "replace").encode())
    if b"e" not in text and b"E" not in text:
        return text
    return _USAGE.sub(lambda counts: _ENDLESS.sub(b"null", counts.group()), text)


def token_count(value: object) -> int:
    """A number of tokens as some server wrote it; 0 for what can be none."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 53:
        return 0
    return int(value)


def closed_error() -> Error:
    """The upstream ended without finishing: never a success."""
    return Error("the upstream ended the answer before it was finished", kind="upstream", code="upstream_closed")


def estimated(usage: Usage | None) -> Usage:
    """A usage to show when the upstream gave none."""
    return usage if usage is not None else Usage(estimated=True)

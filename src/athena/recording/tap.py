"""Collects one request while it is served: references to what passes by, and nothing else.

On the event loop a chunk costs a tuple and an addition. Everything that takes time (removing credentials, decoding, naming the
session) is done by `made`, in another thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from athena.errors import AthenaError, UpstreamError
from athena.exchange import Head, Options, UpstreamCall
from athena.recording import lines
from athena.recording.secrets import Mask, plain_headers, plain_query
from athena.recording.sessions import belonging
from athena.recording.state import NotedEnvelope, NotedStore, StateNotes
from athena.serving.record import Record, as_fields
from athena.serving.tap import Asked, Moment, Tap
from athena.serving.targets import Target

_BESIDE = 200
"""Bytes that a chunk takes in memory besides its own."""
_EVERY = 32
"""Chunks after which the room is looked at."""
_READ, _WRITE, _ATTEMPT, _UPSTREAMHEAD, _ATTEMPTEND, _TICK, _KEPTALIVE, _STOPPED, _CLIENTHEAD = range(9)
"""What a kept tuple is. Numbers, and not the classes of lines: the collector lets go of tuples that hold nothing it watches."""
_STREAMS = (_READ, _WRITE)


class Room:
    """What all recordings hold together that are not written yet.

    Two counters that only grow: one belongs to the event loop, the other to whoever writes recordings.
    """

    __slots__ = ("limit", "released", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self.released = 0


class _Attempt(msgspec.Struct):
    target: Target
    body: bytes
    path: str = ""
    headers: dict[str, str] = {}
    created: int = 0
    input_tokens: int = 0


class RecordingTap(Tap):
    """One request. `on_over` gets this object once the request is over."""

    sees_bytes = True
    sees_events = False

    def __init__(
        self, record: Record, key: str | None, room: Room, on_over: Callable[[RecordingTap], None], *, version: str
    ) -> None:
        self.record = record
        self.status = 0
        """The client's, as soon as it has one."""
        self.is_whole = True
        """False: there was no room for all of it."""
        self.size = 0
        self.asked_as: Asked | None = None
        self.body = b""
        self._key = key
        self._room = room
        self._on_over = on_over
        self._version = version
        self._state = StateNotes()
        self._targets: tuple[Target, ...] = ()
        self._refusal: lines.Failure | None = None
        self._left_out: dict[int, tuple[str, ...]] = {}
        self._options: Options | None = None
        self._happened: list[tuple[int, float, Any]] = []
        self._look_at = _EVERY
        self._looked = 0

    # -- on the event loop ---------------------------------------------------------------------------------------------------

    def client_request(self, body: bytes) -> None:
        """Keep it."""
        self.body = body
        self._take(len(body))

    def asked(self, asked: Asked) -> None:
        """Keep it, without the headers that carry credentials."""
        headers = plain_headers(asked.headers.items())
        self.asked_as = msgspec.structs.replace(asked, headers=headers, query=plain_query(asked.query))
        self._targets = asked.targets

    def chosen(self, targets: tuple[Target, ...], refusal: AthenaError | None) -> None:
        """Keep it."""
        # Never the exception itself: it would keep the frames that it came through, and all that they hold.
        self._targets, self._refusal = targets or self._targets, failure_of(refusal) if refusal is not None else None

    def trying(self, target: Target, left_out: tuple[str, ...]) -> None:
        """Keep it."""
        if left_out:
            self._left_out[id(target)] = left_out

    def options(self, options: Options) -> Options:
        """The same, with the use of envelope and memory written down."""
        self._options = options
        envelope, store = options.envelope, options.store
        return msgspec.structs.replace(
            options,
            envelope=NotedEnvelope(envelope, self._state) if envelope is not None else None,
            store=NotedStore(store, self._state) if store is not None else None,
        )

    def upstream_request(self, target: Target, call: UpstreamCall) -> None:
        """Keep it."""
        self._take(len(call.body))
        attempt = _Attempt(target, call.body if self.is_whole else b"")
        if self._options is not None:
            attempt.created, attempt.input_tokens = self._options.created, self._options.input_tokens
        self._happened.append((_ATTEMPT, 0.0, attempt))

    def sent(self, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        """Keep it."""
        _, _, attempt = self._happened[-1]
        attempt.path, attempt.headers = (
            path,
            plain_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers),
        )
        self._happened[-1] = (_ATTEMPT, now, attempt)

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        """Keep it."""
        self._happened.append((_UPSTREAMHEAD, now, (status, headers)))

    def upstream_bytes(self, data: bytes, now: float) -> None:
        """Keep them."""
        happened = self._happened
        happened.append((_READ, now, data))
        if len(happened) >= self._look_at:
            self._look()

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        """Keep it."""
        self._happened.append((_ATTEMPTEND, now, failure_of(failure) if failure is not None else None))

    def moment(self, moment: Moment, now: float) -> None:
        """Keep it."""
        self._happened.append((_TICK if moment == "tick" else _KEPTALIVE, now, None))

    def stopped(self, reason: str, now: float) -> None:
        """Keep it."""
        self._happened.append((_STOPPED, now, reason))

    def client_head(self, head: Head, now: float) -> None:
        """Keep it."""
        self.status = head.status
        self._happened.append((_CLIENTHEAD, now, head))

    def client_bytes(self, data: bytes, now: float) -> None:
        """Keep them."""
        happened = self._happened
        happened.append((_WRITE, now, data))
        if len(happened) >= self._look_at:
            self._look()

    def over(self, record: Record) -> None:
        """Hand it over."""
        self._look()
        self._on_over(self)

    def release(self) -> None:
        """It is written, and others may have its room. For the one who writes."""
        self._room.released += self.size
        self.size = 0

    def drop(self) -> None:
        """It is not to be written at all. For the event loop."""
        self._room.taken -= self.size
        self.size = 0

    def _look(self) -> None:
        """Count what came since the last look."""
        happened = self._happened
        fresh = happened[self._looked :]
        self._looked = len(happened)
        self._look_at = self._looked + _EVERY
        self._take(sum(len(what) for kind, _, what in fresh if kind in _STREAMS) + _BESIDE * len(fresh))

    def _take(self, size: int) -> None:
        room = self._room
        room.taken += size
        self.size += size
        if room.taken - room.released > room.limit or not self.is_whole:
            self._give_up()

    def _give_up(self) -> None:
        """There is no room for all of it, and half a recording is none."""
        self.is_whole = False
        self.body = b""
        self._happened.clear()
        self._looked, self._look_at = 0, _EVERY
        self.drop()

    # -- when somebody reads it ------------------------------------------------------------------------------------------------

    def made(self, secrets: Iterable[str]) -> lines.Recording:
        """The recording, without credentials. Not for one that is not whole."""
        asked = self.asked_as
        assert asked is not None
        mask = Mask((*secrets, self._key or "", *(secret for target in asked.targets for secret in target.secrets)))
        start = asked.now
        whose = belonging(asked.headers, self.body)
        streams = {
            stream: iter(mask.pieces([what for kind, _, what in self._happened if kind == stream])) for stream in _STREAMS
        }
        happened = tuple(
            (lines.Read if kind == _READ else lines.Write)(_since(start, now), lines.Payload.of(next(streams[kind])))
            if kind in streams
            else _line(kind, _since(start, now), what, self._targets, mask)
            for kind, now, what in self._happened
        )
        record = as_fields(self.record)
        return lines.Recording(
            header=lines.Header(
                id=self.record.request_id,
                athena=self._version,
                at=round(asked.wall, 6),
                clock=start,
                program=mask.text(whose.program),
                session=mask.text(whose.session),
                agent=mask.text(whose.agent),
                parent=mask.text(whose.parent),
            ),
            settings=self._settings(asked, mask),
            seals=self._state.seals(),
            request=lines.ClientRequest(
                body=lines.Payload.of(mask.data(self.body)),
                method=asked.method,
                path=mask.text(asked.path),
                query=mask.text(asked.query),
                dialect=self.record.dialect,
                headers=mask.headers(dict(asked.headers)),
            ),
            happened=happened,
            outcome=lines.Outcome(
                msgspec.json.decode(mask.data(msgspec.json.encode(record))),
                msgspec.json.decode(mask.data(msgspec.json.encode(self.record.details))),
            ),
        )

    def _settings(self, asked: Asked, mask: Mask) -> lines.Settings:
        settings = lines.Settings(
            targets=[_target(target, self._left_out.get(id(target), ())) for target in self._targets],
            refusal=self._refusal,
            answers=sparse(asked.answers),
            retries=sparse(asked.retries),
            correct=asked.correct,
            key=self.record.key,
            large=self.record.large,
        )
        return msgspec.json.decode(mask.data(msgspec.json.encode(settings)), type=lines.Settings)


def _since(start: float, now: float) -> float:
    """The time as few digits as give exactly `now` again when `start` is added."""
    exact = now - start
    for digits in (3, 6, 9):
        short = round(exact, digits)
        if start + short == now:
            return short
    return exact


def _line(kind: int, t: float, what: Any, targets: tuple[Target, ...], mask: Mask) -> lines.Happened:
    """What was kept, as a line."""
    match kind:
        case _ if kind == _UPSTREAMHEAD:
            return lines.UpstreamHead(t, what[0], mask.headers(plain_headers(what[1].items())))
        case _ if kind == _CLIENTHEAD:
            return lines.ClientHead(t, what.status, mask.headers(plain_headers(what.headers.items())))
        case _ if kind == _ATTEMPTEND:
            return lines.AttemptEnd(t, masked_failure(what, mask) if what is not None else None)
        case _ if kind == _STOPPED:
            return lines.Stopped(t, what)
        case _ if kind == _TICK:
            return lines.Tick(t)
        case _ if kind == _KEPTALIVE:
            return lines.KeptAlive(t)
    index = next((number for number, target in enumerate(targets) if target is what.target), 0)
    return lines.Attempt(
        t,
        index,
        mask.text(what.path),
        mask.headers(what.headers),
        lines.Payload.of(mask.data(what.body)),
        what.created,
        what.input_tokens,
    )


def failure_of(error: AthenaError) -> lines.Failure:
    """An exception as a part of a line."""
    return lines.Failure(
        type(error).__name__,
        error.message,
        error.kind,
        error.code,
        error.status,
        error.retry_after,
        error.request_sent if isinstance(error, UpstreamError) else False,
    )


def masked_failure(failure: lines.Failure, mask: Mask) -> lines.Failure:
    """The same without secrets."""
    return msgspec.structs.replace(failure, message=mask.text(failure.message))


def _target(target: Target, left_out: tuple[str, ...]) -> lines.TargetSettings:
    return lines.TargetSettings(
        upstream=target.upstream,
        model=target.model,
        dialect=target.dialect,
        url=plain_url(target.base_url),
        own_path=target.own_path,
        tools=target.tools,
        route=sparse(target.route),
        prompted_route=sparse(target.prompted_route) if target.prompted_route is not None else None,
        limits=sparse(target.limits),
        context_limit_kb=target.context_limit_kb,
        profile=sparse(target.profile),
        left_out=list(left_out),
    )


_USER = re.compile(r"^[^@/]*@")


def plain_url(url: str) -> str:
    """A URL without what may be a credential in it: user, password, and the values of its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, _USER.sub("", parts.netloc), parts.path, plain_query(parts.query), ""))


def sparse(value: Any) -> Any:
    """A struct as a mapping without the fields that have their usual values, all the way down."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        found = {field.name: getattr(value, field.name) for field in fields}
        usual = {field.name: _default(field) for field in fields}
        return {name: sparse(held) for name, held in found.items() if held != usual[name] and not callable(held)}
    if isinstance(value, Mapping):
        return {str(name): sparse(held) for name, held in value.items() if not callable(held)}
    if isinstance(value, list | tuple | set | frozenset):
        return [sparse(held) for held in value]
    return value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default

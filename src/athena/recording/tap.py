"""Collects one request while it is served: what passes by, and nothing else.

On the event loop whatever happens takes three places in a list (`NotingTap`). Some dozen reads at a time become one piece
of memory: thousands of small objects that stay would let every later one be made in memory that no cache holds. Everything that
takes time (masking secrets, decoding, naming the session) is done in another thread, or when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from athena.dialects.plain_reads import SplicedRecord
from athena.errors import AthenaError, UpstreamError
from athena.exchange import Head, Options, UpstreamCall
from athena.recording import lines
from athena.recording.heads import encoded_head
from athena.recording.packed import PackedExchange
from athena.recording.parted import Parted
from athena.recording.room import Room
from athena.recording.secrets import plain_mapping, plain_pairs, plain_query
from athena.recording.served_by import ServedBy, SettingsMemo
from athena.recording.state import NotedEnvelope, NotedStore, StateNotes
from athena.recording.steps import Row, Steps, gathered, reads_in
from athena.recording.verdicts import is_special
from athena.serving.record import RequestRecord, values_of
from athena.serving.sessions import said_by
from athena.serving.tap import MOST_NOTES, MUCH, Asked, Moment, NotingTap, Occurrence, SentCall
from athena.serving.targets import Target

_FEW = 3 * 32
"""Places up to which the last notes are left as they are."""
_BESIDE = 40
"""Bytes that a step takes in memory besides its own."""
_NONE = b""
_with = msgspec.structs.replace

# To look a member up in its class takes longer than to write it down.
_ATTEMPT, _UPSTREAM_HEAD, _ATTEMPT_END, _CLIENT_HEAD = (
    Occurrence.ATTEMPT, Occurrence.UPSTREAM_HEAD, Occurrence.ATTEMPT_END, Occurrence.CLIENT_HEAD,
)  # fmt: skip


class RecordingTap(NotingTap):
    """One request. `on_over` gets this object once the request is over."""

    # What most requests never change is written down here, once for all of them.
    kind: lines.ExchangeKind = "served"
    is_whole = True
    """False: there was no room for all of it."""
    is_special = False
    """Is it kept longer than others? Whoever keeps it says so."""
    number = 0
    """Grows from one to the next. Whoever keeps it says it."""
    _claimed = 0
    """Bytes that were taken from the room."""
    _state: StateNotes | None = None
    _chosen: tuple[Target, ...] = ()
    """The targets that may be asked, where they are not all that were asked for."""
    _refusal: lines.Failure | None = None
    _left_out: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    _is_handed_over = False

    def __init__(
        self, record: RequestRecord, key: str | None, room: Room, on_over: Callable[[RecordingTap], None], *, version: str
    ) -> None:
        self.record = record
        # Flat, and not tuples: a stream has many thousand, and each would be one more object to make and to look at for the
        # collector.
        self.notes = []
        self._rows: list[Row] = []
        """Notes that were put together."""
        self._key = key
        self._room = room
        self._on_over = on_over
        self._version = version

    # -- on the event loop ---------------------------------------------------------------------------------------------------

    @property
    def body(self) -> bytes:
        """The client's."""
        return self.asked_as.body if self.asked_as is not None else b""

    @property
    def at(self) -> float:
        """When it began, in seconds since 1970, with as many digits as are kept and told."""
        return round(self.asked_as.wall, 6) if self.asked_as is not None else 0.0

    @property
    def status(self) -> int:
        """The client's, as soon as it has one."""
        for notes in (self.notes, *[row for row in reversed(self._rows) if isinstance(row, list)]):
            for what, more in zip(notes[-2::-3], notes[-1::-3], strict=True):
                if what is _CLIENT_HEAD:
                    return int(more.status)
        return 0

    @property
    def reads(self) -> int:
        """How many there are so far; counted only when somebody looks."""
        return sum(map(reads_in, (*self._rows, self.notes)))

    def asked(self, asked: Asked) -> None:
        """Keep it. The headers that carry credentials are left out when somebody reads it."""
        self.asked_as = asked
        self.size = size = len(asked.body)
        if size > MUCH:
            self.gather()

    def chosen(self, targets: tuple[Target, ...], refusal: AthenaError | None) -> None:
        self._chosen = targets
        if refusal is not None:
            # Never the exception itself: it would keep the frames that it came through, and all that they hold.
            self._refusal = failure_of(refusal)

    def trying(self, target: Target, left_out: tuple[str, ...]) -> None:
        self._left_out = {**self._left_out, id(target): left_out}

    def options(self, options: Options) -> Options:
        """The same, with the use of envelope and memory written down."""
        self.created, self.input_tokens = options.created, options.input_tokens
        state = self._state
        if state is None:
            state = self._state = StateNotes()
        envelope, store = options.envelope, options.store
        return _with(
            options,
            envelope=NotedEnvelope(envelope, state) if envelope is not None else None,
            store=NotedStore(store, state) if store is not None else None,
        )

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        body = call.body
        self.notes += (now, _ATTEMPT, SentCall(target, body, path, headers, self.created, self.input_tokens))
        self.size += len(body)
        if len(body) > MUCH:
            self.gather()

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        self.notes += (now, _UPSTREAM_HEAD, (status, headers))

    def upstream_bytes(self, data: bytes, now: float) -> None:
        self._step(data, _NONE, now)

    def passed(self, data: bytes, output: bytes, now: float, spliced: tuple[bytes, SplicedRecord] | None = None) -> None:
        self._step(data, output, now)

    def _step(self, data: bytes, output: bytes, now: float) -> None:
        size = len(data) + len(output)
        self.notes += (now, data, output)
        self.size += size
        if len(self.notes) >= MOST_NOTES or size > MUCH:
            self.gather()

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        self.notes += (now, _ATTEMPT_END, failure_of(failure) if failure is not None else None)

    def moment(self, moment: Moment, now: float) -> None:
        self.notes += (now, Occurrence.TICK if moment == "tick" else Occurrence.KEPT_ALIVE, None)

    def stopped(self, reason: str, now: float) -> None:
        self.notes += (now, Occurrence.STOPPED, reason)

    def not_kept(self, changed: Mapping[str, Any] | None, failure: AthenaError | None, now: float) -> None:
        """Note that the response was not kept in the store, with what was changed or why."""
        what = dict(changed) if changed is not None else None, failure_of(failure) if failure is not None else None
        self.notes += (now, Occurrence.NOT_KEPT, what)

    def client_head(self, head: Head, now: float) -> None:
        self.notes += (now, _CLIENT_HEAD, head)

    def client_bytes(self, data: bytes, now: float) -> None:
        self._step(_NONE, data, now)

    def gather(self) -> None:
        """Put the last notes together, and take room for them."""
        notes = self.notes
        self.size += _BESIDE * (len(notes) // 3)
        if len(notes) > _FEW:
            self._rows += gathered(notes)
            # The same list: others write into it.
            notes.clear()
        room, size = self._room, self.size
        room.taken += size - self._claimed
        self._claimed = size
        if room.taken - room.released > room.limit or not self.is_whole:
            self._give_up()

    def over(self, record: RequestRecord) -> None:
        """Hand the finished recording to the recorder."""
        self.gather()
        self._is_handed_over = True
        self._on_over(self)

    def dropped(self) -> None:
        """Half a recording is none; a whole one is another's by now."""
        if not self._is_handed_over:
            self._give_up()
            self._on_over(self)

    def drop(self) -> None:
        """It is not to be kept. For the event loop."""
        self._room.taken -= self._claimed
        self._claimed = self.size = 0

    def release(self) -> None:
        """It is written, and others may have its room. For the one who writes."""
        self._room.released += self._claimed
        self._claimed = self.size = 0

    def _give_up(self) -> None:
        """There is no room for all of it, and half a recording is none."""
        self.is_whole = False
        if self.asked_as is not None:
            self.asked_as = msgspec.structs.replace(self.asked_as, body=b"")
        self.notes.clear()
        self._rows.clear()
        self.drop()

    # -- when it is over, or somebody looks ------------------------------------------------------------------------------------

    def _steps(self) -> Steps:
        return Steps([*self._rows, self.notes])

    def packed(self) -> PackedExchange:
        """All of it as far as it came. Not for one that is not whole; of a request in flight, for the event loop."""
        asked, record, state = self.asked_as, self.record, self._state
        assert asked is not None
        targets = self._chosen or asked.targets
        steps = self._steps()
        bodies = [asked.body]
        happened: list[tuple[int, Occurrence, float, Any]] = []
        for place, kind, when, what in steps.happened:
            if kind is _ATTEMPT:
                bodies.append(what.body)
                headers = plain_pairs(what.headers)
                what = _index(targets, what.target), what.path, headers, what.created, what.input_tokens
            elif kind is _UPSTREAM_HEAD:
                what = what[0], plain_mapping(what[1])
            elif kind is _CLIENT_HEAD:
                what = what.status, plain_mapping(what.headers)
            happened.append((place, kind, when, what))
        name, at, kept = record.request_id, self.at, asked.kept
        head = encoded_head(
            (
                name, self._version, at, asked.now, self.kind, asked.method, asked.path,
                plain_query(asked.query) if asked.query else "", plain_mapping(asked.headers), happened, values_of(record),
                record.details, state.seals() if state is not None and state.is_used else None, kept,
            )
        )  # fmt: skip
        left_out = tuple([self._left_out.get(id(target), ()) for target in targets]) if self._left_out else ()
        return PackedExchange(
            name,
            self.kind,
            # Whoever is refused at the door must not push out what others went through.
            is_special=self.kind != "refused" and is_special(record),
            head=head,
            about=(at, record.key, record.dialect, record.upstream, record.upstream_model, said_by(asked.headers)),
            bodies=bodies,
            steps=steps,
            served_by=ServedBy(
                targets, left_out, asked.answers, asked.retries, asked.correct, record.key, record.large, self._refusal
            ),
            targets=asked.targets,
            key=self._key,
        )

    def made(self, secrets: Iterable[str]) -> lines.Recording:
        """The recording, without credentials. Not for one that is not whole."""
        return self.packed().made(secrets)

    def parted(self, secrets: Iterable[str], memo: SettingsMemo | None = None) -> Parted:
        """The same in parts."""
        return self.packed().parted(secrets, memo)

    def secrets(self, known: Iterable[str]) -> tuple[str, ...]:
        """What nobody may read: the known secrets, the client's key, and those of the targets."""
        targets = self.asked_as.targets if self.asked_as is not None else ()
        return (*known, self._key or "", *(secret for target in targets for secret in target.secrets))

    def answers(self) -> list[tuple[float, list[bytes]]]:
        """For each answer of an upstream the time of day at which it began, and its reads: as they came, secrets and all."""
        asked = self.asked_as
        offset = asked.wall - asked.now if asked is not None else 0.0
        steps = self._steps()
        heads = [(place, when) for place, kind, when, _ in steps.happened if kind is _UPSTREAM_HEAD]
        reads, _ = steps.streams().pieces()
        ends = [place for place, _ in heads[1:]] + [len(reads)]
        return [
            (now + offset, [read for read in reads[place:end] if read]) for (place, now), end in zip(heads, ends, strict=True)
        ]


def _index(targets: tuple[Target, ...], wanted: Target) -> int:
    for number, target in enumerate(targets):
        if target is wanted:
            return number
    return 0


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

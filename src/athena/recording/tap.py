"""Collects one request while it is served: what passes by, and nothing else.

On the event loop a read and what left for it cost three places in a list, and whatever else happens four in another one. Some
dozen reads at a time become one piece of memory: thousands of small objects that stay would let every later one be made in
memory that no cache holds. For the disk, or when somebody looks, the rest becomes one as well (`packed`). Everything that takes
time (masking secrets, decoding, naming the session) is done in another thread, or when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from athena.dialects.plain_reads import BurstParts, SplicedRecord
from athena.errors import AthenaError, UpstreamError
from athena.exchange import Head, Options, UpstreamCall
from athena.recording import lines
from athena.recording.heads import Occurrence, encoded_head
from athena.recording.packed import PackedExchange
from athena.recording.parted import Parted
from athena.recording.room import Room
from athena.recording.secrets import plain_mapping, plain_pairs, plain_query
from athena.recording.served_by import ServedBy, SettingsMemo
from athena.recording.state import NotedEnvelope, NotedStore, StateNotes
from athena.recording.steps import Steps, packs_of
from athena.recording.verdicts import is_special
from athena.serving.record import RequestRecord, values_of
from athena.serving.sessions import said_by
from athena.serving.tap import Asked, Moment, Tap
from athena.serving.targets import Target

_BESIDE = 40
"""Bytes that a step takes in memory besides its own."""
_EVERY = 3 * 64
"""Places in the list after which its steps are packed and the room is looked at."""
_FEW = 3 * 32
"""Places up to which the last steps are left as they are."""
_NONE = b""
_with = msgspec.structs.replace

# To look a member up in its class takes longer than to write it down.
_ATTEMPT, _UPSTREAM_HEAD, _ATTEMPT_END, _CLIENT_HEAD = (
    Occurrence.ATTEMPT, Occurrence.UPSTREAM_HEAD, Occurrence.ATTEMPT_END, Occurrence.CLIENT_HEAD,
)  # fmt: skip


class _Attempt(msgspec.Struct, frozen=True):
    target: Target
    body: bytes
    path: str
    headers: list[tuple[bytes, bytes]]
    created: int
    input_tokens: int


class RecordingTap(Tap):
    """One request. `on_over` gets this object once the request is over."""

    sees_bytes = True
    sees_events = False

    # What most requests never change is written down here, once for all of them.
    kind: lines.ExchangeKind = "served"
    status = 0
    """The client's, as soon as it has one."""
    is_whole = True
    """False: there was no room for all of it."""
    is_special = False
    """Is it kept longer than others? Whoever keeps it says so."""
    size = 0
    asked_as: Asked | None = None
    _state: StateNotes | None = None
    _targets: tuple[Target, ...] = ()
    _refusal: lines.Failure | None = None
    _left_out: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    _options: Options | None = None
    _bursts: tuple[tuple[int, int, int], ...] = ()
    """As `Streams` has them."""
    _burst: tuple[int, BurstParts] | None = None
    """The place of the last read in the list, and of what it consists."""
    _packed = 0
    """Places of the list that were packed."""
    _is_handed_over = False

    def __init__(
        self, record: RequestRecord, key: str | None, room: Room, on_over: Callable[[RecordingTap], None], *, version: str
    ) -> None:
        self.record = record
        self._key = key
        self._room = room
        self._on_over = on_over
        self._version = version
        self._steps: list[Any] = []
        """For each step three places: when, what was read, and what left for it, either of which may be empty; or texts and
        the `SplicedRecord` that makes both of them. Flat, and not tuples: a stream has many thousand, and each would be one
        more object to make and for the collector to look at."""
        self._rows: list[Any] = [self._steps]
        """Packs, and last the list of what is not packed yet. Another thread may copy it at any moment."""
        self._others: list[Any] = []
        """Everything else that happened, four places for each: before which place of the list of steps, what, when, and what it
        holds."""

    # -- on the event loop ---------------------------------------------------------------------------------------------------

    @property
    def body(self) -> bytes:
        """The client's."""
        return self.asked_as.body if self.asked_as is not None else b""

    def asked(self, asked: Asked) -> None:
        """Keep it. The headers that carry credentials are left out when somebody reads it."""
        self.asked_as = asked
        self._targets = asked.targets
        size, room = len(asked.body), self._room
        room.taken += size
        self.size = size
        if room.taken - room.released > room.limit:
            self._give_up()

    def chosen(self, targets: tuple[Target, ...], refusal: AthenaError | None) -> None:
        if targets:
            self._targets = targets
        if refusal is not None:
            # Never the exception itself: it would keep the frames that it came through, and all that they hold.
            self._refusal = failure_of(refusal)

    def trying(self, target: Target, left_out: tuple[str, ...]) -> None:
        self._left_out = {**self._left_out, id(target): left_out}

    def options(self, options: Options) -> Options:
        """The same, with the use of envelope and memory written down."""
        self._options = options
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
        options, place = self._options, self._packed + len(self._steps)
        if options is not None:
            attempt = _Attempt(target, call.body, path, headers, options.created, options.input_tokens)
        else:
            attempt = _Attempt(target, call.body, path, headers, 0, 0)
        self._others += (place, _ATTEMPT, now, attempt)
        self._take(len(call.body))

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        self._others += (self._packed + len(self._steps), _UPSTREAM_HEAD, now, (status, headers))

    def passed(self, data: bytes, output: bytes, now: float, spliced: tuple[bytes, SplicedRecord] | None = None) -> None:
        steps = self._steps
        steps += (now, data, output) if spliced is None else (now, *spliced)
        if len(steps) >= _EVERY:
            self._pack()

    @property
    def steps(self) -> list[Any]:
        return self._steps

    def steps_written(self) -> None:
        if len(self._steps) >= _EVERY:
            self._pack()

    def upstream_bytes(self, data: bytes, now: float) -> None:
        steps = self._steps
        steps += (now, data, _NONE)
        if len(steps) >= _EVERY:
            self._pack()

    def burst(self, burst: BurstParts) -> None:
        steps = self._steps
        self._burst = (len(steps) - 3, burst) if steps else None

    def _part_burst(self, at: int, burst: BurstParts, now: float) -> None:
        """Put the parts of a read in its place; all that left for them leaves in a step of its own."""
        steps, others, parts = self._steps, self._others, burst.parts
        steps[at : at + 3] = [place for part in parts for place in (steps[at], *part)]
        # What happened since the read stands after all of its parts.
        for number in range(len(others) - 4, -1, -4):
            if others[number] <= self._packed + at:
                break
            others[number] += 3 * (len(parts) - 1)
        steps += (now, _NONE, _NONE)
        # Last: whoever reads this meanwhile finds all of these steps.
        self._bursts += (((self._packed + at) // 3, len(parts), (self._packed + len(steps)) // 3 - 1),)

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        what = failure_of(failure) if failure is not None else None
        self._others += (self._packed + len(self._steps), _ATTEMPT_END, now, what)

    def moment(self, moment: Moment, now: float) -> None:
        kind = Occurrence.TICK if moment == "tick" else Occurrence.KEPT_ALIVE
        self._others += (self._packed + len(self._steps), kind, now, None)

    def stopped(self, reason: str, now: float) -> None:
        self._others += (self._packed + len(self._steps), Occurrence.STOPPED, now, reason)

    def not_kept(self, changed: Mapping[str, Any] | None, failure: AthenaError | None, now: float) -> None:
        """Note that the response was not kept in the store, with what was changed or why."""
        what = dict(changed) if changed is not None else None, failure_of(failure) if failure is not None else None
        self._others += (self._packed + len(self._steps), Occurrence.NOT_KEPT, now, what)

    def client_head(self, head: Head, now: float) -> None:
        self.status = head.status
        self._others += (self._packed + len(self._steps), _CLIENT_HEAD, now, head)

    def client_bytes(self, data: bytes, now: float) -> None:
        steps, known = self._steps, self._burst
        if known is not None and known[1].output is data:
            self._part_burst(*known, now)
        else:
            steps += (now, _NONE, data)
        self._burst = None
        if len(steps) >= _EVERY:
            self._pack()

    def over(self, record: RequestRecord) -> None:
        """Hand the finished recording to the recorder."""
        steps = self._steps
        if len(steps) > _FEW:
            self._pack()
        elif steps:
            sizes = sum([len(part) for part in steps if type(part) is bytes])
            self._take(sizes + _BESIDE * (len(steps) // 3))
        self._options = self._burst = None  # whoever keeps this for long need not keep that
        self._is_handed_over = True
        self._on_over(self)

    def dropped(self) -> None:
        """Half a recording is none; a whole one is another's by now."""
        if not self._is_handed_over:
            self._give_up()
            self._on_over(self)

    def drop(self) -> None:
        """It is not to be written at all. For the event loop."""
        self._room.taken -= self.size
        self.size = 0

    def _pack(self) -> None:
        """Put the last steps together, and count them."""
        steps = self._steps
        packs = packs_of(steps)
        self._burst = None
        self._packed += len(steps)
        # In one go, and the old list stays as it is: whoever copies this meanwhile has every step once.
        self._steps = []
        self._rows[-1:] = (*packs, self._steps)
        self._take(sum([pack.size for pack in packs]) + _BESIDE * (len(steps) // 3))

    def _take(self, size: int) -> None:
        room = self._room
        room.taken += size
        self.size += size
        if room.taken - room.released > room.limit or not self.is_whole:
            self._give_up()

    def _give_up(self) -> None:
        """There is no room for all of it, and half a recording is none."""
        self.is_whole = False
        if self.asked_as is not None:
            self.asked_as = msgspec.structs.replace(self.asked_as, body=b"")
        self._steps = []
        self._rows = [self._steps]
        self._packed = 0
        self._bursts, self._burst = (), None
        self._others.clear()
        self.drop()

    # -- when it is over, or somebody looks ------------------------------------------------------------------------------------

    def packed(self) -> PackedExchange:
        """All of it, in few objects. Not for one that is not whole. The room that it takes is from now on the packed one's."""
        asked, record, state = self.asked_as, self.record, self._state
        assert asked is not None
        # A request in flight goes on meanwhile: this is what there is now.
        others, rows, bursts = self._others[:], self._rows[:], self._bursts
        bodies = [asked.body]
        happened: list[tuple[int, Occurrence, float, Any]] = []
        for number in range(0, len(others), 4):
            kind, what = others[number + 1], others[number + 3]
            if kind is _ATTEMPT:
                bodies.append(what.body)
                headers = plain_pairs(what.headers)
                what = self._index(what.target), what.path, headers, what.created, what.input_tokens
            elif kind is _UPSTREAM_HEAD:
                what = what[0], plain_mapping(what[1])
            elif kind is _CLIENT_HEAD:
                what = what.status, plain_mapping(what.headers)
            happened.append((others[number] // 3, kind, others[number + 2], what))
        name, kept = record.request_id, asked.kept
        head = encoded_head(
            (
                name, self._version, asked.wall, asked.now, self.kind, asked.method, asked.path,
                plain_query(asked.query) if asked.query else "", plain_mapping(asked.headers), happened, values_of(record),
                record.details, state.seals() if state is not None and state.is_used else None, kept,
            )
        )  # fmt: skip
        left_out = tuple([self._left_out.get(id(target), ()) for target in self._targets]) if self._left_out else ()
        return PackedExchange(
            name,
            self.kind,
            # Whoever is refused at the door must not push out what others went through.
            is_special=self.kind != "refused" and is_special(record),
            head=head,
            about=(asked.wall, record.key, record.dialect, record.upstream, record.upstream_model, said_by(asked.headers)),
            bodies=bodies,
            rows=rows,
            bursts=bursts,
            served_by=ServedBy(
                self._targets, left_out, asked.answers, asked.retries, asked.correct, record.key, record.large, self._refusal
            ),
            targets=asked.targets,
            key=self._key,
            room=self._room,
            size=self.size,
        )

    def _index(self, wanted: Target) -> int:
        for number, target in enumerate(self._targets):
            if target is wanted:
                return number
        return 0

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
        others = self._others
        heads = [(others[at] // 3, others[at + 2]) for at in range(0, len(others), 4) if others[at + 1] is _UPSTREAM_HEAD]
        reads, _ = Steps(self._rows[:], self._bursts).streams().pieces()
        ends = [place for place, _ in heads[1:]] + [len(reads)]
        return [
            (now + offset, [read for read in reads[place:end] if read]) for (place, now), end in zip(heads, ends, strict=True)
        ]


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

"""Collects one request while it is served: what passes by, and nothing else.

On the event loop a read and what left for it cost three places in a list, and whatever else happens four in another one. Some
dozen reads at a time become one piece of memory: thousands of small objects that stay would let every later one be made in
memory that no cache holds. Everything that takes time (removing credentials, decoding, naming the session) is done by `parted`,
in another thread.
"""

from __future__ import annotations

import enum
import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import msgspec

from athena.dialects.plain_reads import BurstParts, SplicedRecord
from athena.errors import AthenaError, UpstreamError
from athena.exchange import Head, Options, UpstreamCall
from athena.recording import lines
from athena.recording.parted import Parted, Streams, cut, since
from athena.recording.secrets import NO_SECRETS, Mask, masks, plain_headers, plain_query
from athena.recording.state import NotedEnvelope, NotedStore, StateNotes
from athena.serving.record import RequestRecord, as_fields
from athena.serving.sessions import belonging
from athena.serving.tap import Asked, Moment, Tap
from athena.serving.targets import Target

_BESIDE = 40
"""Bytes that a step takes in memory besides its own."""
_EVERY = 3 * 64
"""Places in the list after which its steps are packed and the room is looked at."""
_FEW = 3 * 8
"""Places up to which the last steps are left as they are."""
_LARGE = 1024
"""Bytes of the steps of one pack, on the average, from which on they are not copied together."""
_NONE = b""
_with = msgspec.structs.replace
_SETTINGS_KEPT = 64
"""Settings that are remembered as they are written."""


class Room:
    """What all recordings hold together that are not written yet.

    Two counters that only grow: one belongs to the event loop, the other to whoever writes recordings.
    """

    __slots__ = ("limit", "released", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self.released = 0


SettingsMemo: TypeAlias = dict[tuple[Any, ...], tuple[tuple[Any, ...], bytes]]
"""Settings as they are written, by the objects that they were made of."""


class _Kind(enum.Enum):
    """What happened besides reads and writes."""

    ATTEMPT = enum.auto()
    UPSTREAM_HEAD = enum.auto()
    ATTEMPT_END = enum.auto()
    TICK = enum.auto()
    KEPT_ALIVE = enum.auto()
    STOPPED = enum.auto()
    NOT_KEPT = enum.auto()
    CLIENT_HEAD = enum.auto()


# To look a member up in its class takes longer than to write it down.
_ATTEMPT, _UPSTREAM_HEAD, _ATTEMPT_END, _CLIENT_HEAD = (
    _Kind.ATTEMPT, _Kind.UPSTREAM_HEAD, _Kind.ATTEMPT_END, _Kind.CLIENT_HEAD,
)  # fmt: skip
_Other: TypeAlias = tuple[int, _Kind, float, Any]
"""Before which place of the list of steps it happened, what, when, and what it holds."""


class _Attempt(msgspec.Struct, frozen=True):
    target: Target
    body: bytes
    path: str
    headers: list[tuple[bytes, bytes]]
    created: int
    input_tokens: int


class _Pack:
    """Some steps that followed one another. It is never changed."""

    __slots__ = ("read_sizes", "reads", "size", "spliced", "times", "write_sizes", "writes")

    def __init__(self, steps: list[Any], spliced: SplicedRecord | None) -> None:
        """`spliced`: all of these steps are texts that this makes records of."""
        reads = steps[1::3]
        writes = [] if spliced is not None else steps[2::3]
        self.spliced = spliced
        self.times = array("d", steps[::3])
        self.read_sizes = array("Q", map(len, reads))
        self.write_sizes = array("Q", map(len, writes))
        self.size = sum(self.read_sizes) + sum(self.write_sizes)
        is_large = self.size > _LARGE * len(reads)
        self.reads: list[bytes] = reads if is_large else [b"".join(reads)]
        """Pieces that are together all bytes that were read."""
        self.writes: list[bytes] = writes if is_large else [b"".join(writes)]


def _packs(steps: list[Any]) -> list[_Pack]:
    """The steps in as few packs as hold them: texts of one record are a pack of their own."""
    left = steps[2::3]
    kinds = list(map(type, left))
    found: list[_Pack] = []
    at, size = 0, len(left)
    while at < size:
        record = left[at]
        if type(record) is SplicedRecord:
            end = at + left.count(record)
            if left[at:end] != [record] * (end - at):  # others stand between them
                end = next((number for number in range(at, size) if left[number] != record), size)
            found.append(_Pack(steps[3 * at : 3 * end], record))
        else:
            end = kinds.index(SplicedRecord, at) if SplicedRecord in kinds[at:] else size
            found.append(_Pack(steps[3 * at : 3 * end], None))
        at = end
    return found


_read_texts = msgspec.json.Decoder(list[str]).decode


def _around(record: SplicedRecord) -> tuple[bytes, ...]:
    return record.head, record.tail, record.before, record.behind


class _Steps:
    """All steps of a request so far."""

    def __init__(self, rows: list[Any], bursts: tuple[tuple[int, int, int], ...] = ()) -> None:
        self._bursts = list(bursts)
        packs: list[_Pack] = [*rows[:-1], *_packs(rows[-1][:])]
        self.times: list[float] = []
        self.read_sizes: list[int] = []
        self.write_sizes: list[int] = []
        self.splices: list[tuple[int, int, SplicedRecord]] = []
        for pack in packs:
            if pack.spliced is not None:
                self.splices.append((len(self.times), len(pack.times), pack.spliced))
                self.write_sizes += bytes(len(pack.times))
            self.times += pack.times.tolist()
            self.read_sizes += pack.read_sizes.tolist()
            self.write_sizes += pack.write_sizes.tolist()
        self._packs = packs

    def streams(self, clock: float, places: list[int]) -> Streams:
        """The same as streams; `places` as these have it."""
        whole = [pack for pack in self._packs if pack.spliced is None]
        pieces = [piece for pack in whole for piece in pack.reads]
        pieces += [piece for pack in whole for piece in pack.writes]
        texts = [piece for pack in self._packs if pack.spliced is not None for piece in pack.reads]
        sizes = self.read_sizes, self.write_sizes
        return Streams(clock, places, *sizes, b"".join(pieces), self.times, self.splices, b"".join(texts), self._bursts)

    def may_hide(self, mask: Mask) -> bool:
        """May a record hold a secret that its text does not show? In what stands around the text, between the two, or because
        the client got the text with other escapes."""
        if not self.splices:
            return False
        around = {record for _, _, record in self.splices}
        if mask.has_quotes or any(mask.finds(part) for record in around for part in _around(record)):
            return True
        escaped = [pack for pack in self._packs if pack.spliced is not None and any(b"\\" in part for part in pack.reads)]
        texts = [text for pack in escaped for text in cut(b"".join(pack.reads), pack.read_sizes)[0]]
        return bool(texts) and mask.finds(msgspec.json.encode(_read_texts(b"[%b]" % b",".join(texts))))


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
        """Everything else that happened, four places for each: those of an `_Other`."""

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
        kind = _Kind.TICK if moment == "tick" else _Kind.KEPT_ALIVE
        self._others += (self._packed + len(self._steps), kind, now, None)

    def stopped(self, reason: str, now: float) -> None:
        self._others += (self._packed + len(self._steps), _Kind.STOPPED, now, reason)

    def not_kept(self, changed: Mapping[str, Any] | None, failure: AthenaError | None, now: float) -> None:
        """Note that the response was not kept in the store, with what was changed or why."""
        what = dict(changed) if changed is not None else None, failure_of(failure) if failure is not None else None
        self._others += (self._packed + len(self._steps), _Kind.NOT_KEPT, now, what)

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

    def release(self) -> None:
        """It is written, and others may have its room. For the one who writes."""
        self._room.released += self.size
        self.size = 0

    def drop(self) -> None:
        """It is not to be written at all. For the event loop."""
        self._room.taken -= self.size
        self.size = 0

    def _pack(self) -> None:
        """Put the last steps together, and count them."""
        steps = self._steps
        packs = _packs(steps)
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

    # -- when somebody reads it ------------------------------------------------------------------------------------------------

    def secrets(self, known: Iterable[str]) -> tuple[str, ...]:
        """What nobody may read: the known secrets, the client's key, and those of the targets."""
        targets = self.asked_as.targets if self.asked_as is not None else ()
        return (*known, self._key or "", *(secret for target in targets for secret in target.secrets))

    def answers(self) -> list[tuple[float, list[bytes]]]:
        """For each answer of an upstream the time of day at which it began, and its reads: as they came, secrets and all."""
        asked = self.asked_as
        offset = asked.wall - asked.now if asked is not None else 0.0
        heads = [(place, now) for place, kind, now, _ in self._happened() if kind is _UPSTREAM_HEAD]
        reads, _ = _Steps(self._rows[:], self._bursts).streams(0.0, []).pieces()
        ends = [place // 3 for place, _ in heads[1:]] + [len(reads)]
        return [
            (now + offset, [read for read in reads[place // 3 : end] if read])
            for (place, now), end in zip(heads, ends, strict=True)
        ]

    def _happened(self) -> list[_Other]:
        """What happened besides reads and writes, up to now."""
        others = self._others[:]
        return list(zip(others[::4], others[1::4], others[2::4], others[3::4], strict=True))

    def made(self, secrets: Iterable[str]) -> lines.Recording:
        """The recording, without credentials. Not for one that is not whole."""
        return self.parted(secrets).whole()

    def parted(self, secrets: Iterable[str], memo: SettingsMemo | None = None) -> Parted:
        """The same in parts, which takes less time. `memo` remembers settings from one request to the next."""
        asked = self.asked_as
        assert asked is not None
        # A request in flight goes on meanwhile: this is what there is now.
        others = self._happened()
        steps = _Steps(self._rows[:], self._bursts)
        hidden = self.secrets(secrets)
        mask = masks(hidden)
        bodies = [mask.data(asked.body)]
        bodies += [mask.data(what.body) for _, kind, _, what in others if kind is _ATTEMPT]
        places = [place // 3 for place, _, _, _ in others]
        streams = steps.streams(asked.now, places)
        if mask.finds(streams.data) or mask.finds(streams.texts) or steps.may_hide(mask):
            # Stream by stream: a secret may be cut into pieces.
            reads, writes = streams.pieces()
            streams = Streams.of(asked.now, places, steps.times, mask.pieces(reads), mask.pieces(writes))
        # Most recordings hold no secret outside of their bodies: to look at all of it once takes less than at each part.
        bare = self._bare(asked, others, NO_SECRETS if mask.is_plain else mask)
        if mask.is_plain and _may_hold(bare, mask):
            bare = self._bare(asked, others, mask)
        return Parted(bare=bare, settings=self._settings(asked, hidden, mask, memo), bodies=bodies, streams=streams)

    def _bare(self, asked: Asked, others: list[_Other], mask: Mask) -> lines.Recording:
        """Everything but bodies, streams and settings."""
        start = asked.now
        headers = plain_headers(asked.headers.items())
        whose = belonging(headers, asked.body)
        return lines.Recording(
            settings=lines.Settings(kept=mask.value(asked.kept) if asked.kept is not None else None),
            header=lines.Header(
                id=self.record.request_id,
                athena=self._version,
                at=round(asked.wall, 6),
                clock=start,
                kind=self.kind,
                program=mask.text(whose.program),
                session=mask.text(whose.session),
                agent=mask.text(whose.agent),
                parent=mask.text(whose.parent),
                response=asked.kept.id if asked.kept is not None else "",
            ),
            seals=self._state.seals() if self._state is not None else lines.Seals(),
            request=lines.ClientRequest(
                body=lines.Payload(),
                method=asked.method,
                path=mask.text(asked.path),
                query=mask.text(plain_query(asked.query)),
                dialect=self.record.dialect,
                headers=mask.headers(headers),
            ),
            happened=tuple(_line(kind, since(start, now), what, self._targets, mask) for _, kind, now, what in others),
            outcome=lines.RecordedOutcome(mask.value(as_fields(self.record)), mask.value(self.record.details)),
        )

    def _settings(self, asked: Asked, hidden: tuple[str, ...], mask: Mask, memo: SettingsMemo | None) -> bytes:
        left_out = tuple(self._left_out.get(id(target), ()) for target in self._targets)
        objects = (*self._targets, asked.answers, asked.retries)
        name = (*map(id, objects), left_out, hidden, asked.correct, self.record.key, self.record.large)
        known = memo.get(name) if memo is not None and self._refusal is None else None
        if known is not None:
            return known[1]
        settings = lines.Settings(
            targets=[_target(target, names) for target, names in zip(self._targets, left_out, strict=True)],
            refusal=self._refusal,
            answers=sparse(asked.answers),
            retries=sparse(asked.retries),
            correct=asked.correct,
            key=self.record.key,
            large=self.record.large,
        )
        made = mask.data(msgspec.json.encode(settings))
        if memo is not None and self._refusal is None:
            if len(memo) >= _SETTINGS_KEPT:
                memo.clear()
            # With the objects, so that nothing else gets their ids.
            memo[name] = objects, made
        return made


def _may_hold(bare: lines.Recording, mask: Mask) -> bool:
    """Does any part hold a secret? True as well where that cannot be told."""
    try:
        return mask.finds(msgspec.json.encode(bare))
    except UnicodeEncodeError:  # half of a character
        return True


def _line(kind: _Kind, t: float, what: Any, targets: tuple[Target, ...], mask: Mask) -> lines.Happened:
    """What was kept, as a line. What every request has comes first, and by identity: to look a member up takes longer."""
    if kind is _ATTEMPT:
        return _attempt(t, what, targets, mask)
    if kind is _UPSTREAM_HEAD:
        return lines.UpstreamHead(t, what[0], mask.headers(plain_headers(what[1].items())))
    if kind is _CLIENT_HEAD:
        return lines.ClientHead(t, what.status, mask.headers(plain_headers(what.headers.items())))
    if kind is _ATTEMPT_END:
        return lines.AttemptEnd(t, masked_failure(what, mask) if what is not None else None)
    match kind:
        case _Kind.STOPPED:
            return lines.Stopped(t, what)
        case _Kind.NOT_KEPT:
            changed, failure = what
            return lines.NotKept(t, mask.value(changed), masked_failure(failure, mask) if failure is not None else None)
        case _Kind.TICK:
            return lines.Tick(t)
        case _Kind.KEPT_ALIVE:
            return lines.KeptAlive(t)
        case _Kind.ATTEMPT | _Kind.UPSTREAM_HEAD | _Kind.CLIENT_HEAD | _Kind.ATTEMPT_END:
            raise AssertionError(kind)  # above


def _attempt(t: float, what: _Attempt, targets: tuple[Target, ...], mask: Mask) -> lines.Attempt:
    index = next((number for number, target in enumerate(targets) if target is what.target), 0)
    return lines.Attempt(
        t,
        index,
        mask.text(what.path),
        mask.headers(plain_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in what.headers)),
        lines.Payload(),
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
    """The failure with the secrets in its message masked."""
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
        has_key=target.has_key,
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

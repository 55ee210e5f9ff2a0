"""A recording in parts that are cheap to make and small to keep: what is said once, the bodies, and the two streams.

Reads and writes are most of a recording. Here they are not lines but a few lists: when, how long each piece was, and the bytes.
Making them costs no step of Python for each piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import msgspec

from athena.dialects.plain_reads import SplicedRecord
from athena.recording import lines
from athena.recording.heads import bare_recording, read_head
from athena.recording.lines import Happened, Payload, Recording, since
from athena.recording.verdicts import verdict_of
from athena.serving.record import FIELDS
from athena.serving.sessions import Belonging

_BETWEEN = b",\n"
"""What stands between two texts of one read. No text has a line's end."""


class Streams(msgspec.Struct, frozen=True, array_like=True):
    """All reads and writes of one exchange, as steps: what was read at one moment, and what left for it."""

    clock: float
    """What the driver's clock said at the beginning, if `times` are those of that clock; 0: they count from the beginning."""
    places: list[int] = []
    """For each line that is neither a read nor a write, the step that it stands before."""
    reads: list[int] = []
    writes: list[int] = []
    """For each step, how many bytes were read and written; 0: none."""
    data: bytes = b""
    """The bytes of all reads, then those of all writes; nothing of spliced steps."""
    times: Sequence[float] = []
    """The moment of each step."""
    splices: list[tuple[int, int, SplicedRecord]] = []
    """Steps of which only the texts are here, as `SplicedRecord` has them: the first of these steps, how many follow one
    another, and the record that was read and written for each text."""
    texts: bytes = b""
    """The texts of all spliced steps. Archives kept them in `data` among the reads before there was this field."""
    bursts: list[tuple[int, int, int]] = []
    """Reads that are kept in parts: the first of its steps, how many they are, and the step in which all that is written in
    them was written."""

    @classmethod
    def of(
        cls, clock: float, places: list[int], times: Sequence[float], reads: Sequence[bytes], writes: Sequence[bytes]
    ) -> Streams:
        """For each step its moment, what was read, and what left for it; either may be empty."""
        return cls(clock, places, list(map(len, reads)), list(map(len, writes)), b"".join((*reads, *writes)), times)

    def lines(self, others: Sequence[Happened]) -> tuple[Happened, ...]:
        """Everything that happened, as lines; `others` are those that are neither reads nor writes."""
        found: list[Happened] = []
        waiting = deque(zip(self.places, others, strict=True))
        reads, writes = self.pieces()
        for step, (moment, read, written) in enumerate(zip(self.times, reads, writes, strict=True)):
            while waiting and waiting[0][0] <= step:
                found.append(waiting.popleft()[1])
            t = since(self.clock, moment)
            if read:
                found.append(lines.Read(t, Payload.of(read)))
            if written:
                found.append(lines.Write(t, Payload.of(written)))
        return (*found, *(line for _, line in waiting))

    def pieces(self) -> tuple[list[bytes], list[bytes]]:
        """What was read and what was written in each step."""
        own = self.reads[:]
        if self.texts:
            for first, count, _ in self.splices:
                own[first : first + count] = bytes(count)
        reads, end = cut(self.data, own)
        writes, _ = cut(self.data, self.writes, end)
        at = 0
        for first, count, record in self.splices:
            texts = reads[first : first + count]
            if self.texts:
                texts, at = cut(self.texts, self.reads[first : first + count], at)
            reads[first : first + count] = map(record.came, texts)
            writes[first : first + count] = map(record.left, texts)
        for first, count, left in self.bursts:
            read, written = b"".join(reads[first : first + count]), b"".join(writes[first : first + count])
            reads[first : first + count] = writes[first : first + count] = [b""] * count
            reads[first], writes[left] = read, written
        return reads, writes

    @property
    def size(self) -> int:
        """Bytes of all that came and went; of spliced steps as if no text had an escape."""
        splices, size = self.splices, len(self.data) + len(self.texts)
        if not splices:
            return size
        one, all_counts = splices[0][2], 0
        for _, count, record in splices:
            if record is not one:
                break
            all_counts += count
        else:
            # As almost always, and the texts are searched in one go.
            return size + _around_texts(one, all_counts, self.texts)
        at = 0
        for first, count, record in splices:
            end = at + sum(self.reads[first : first + count])
            size += _around_texts(record, count, self.texts[at:end])
            at = end
        return size


def _around_texts(record: SplicedRecord, count: int, texts: bytes) -> int:
    """Bytes of that many reads and writes with these texts, without one time those of the texts as they are kept."""
    # A border between two texts is the end of one record and the beginning of the next.
    borders = texts.count(_BETWEEN)
    around = len(record.head) + len(record.tail) - 2
    beside = around if record.stays else len(record.before) + len(record.behind)
    return (count + borders) * (around + beside) + len(texts) - 2 * len(_BETWEEN) * borders


class OrderedStreams(msgspec.Struct, frozen=True, array_like=True):
    """The same as archives kept it before there were steps; only read."""

    clock: float
    order: bytes = b""
    """For each thing that happened: 0 is a read, 1 a write, everything above a line of its own."""
    same: bytes = b""
    """For each read and write, 1 where its moment is that of the one before it."""
    sizes: list[int] = []
    data: bytes = b""
    """The bytes of all reads, then those of all writes."""
    times: list[float] = []
    """The moments of reads and writes, without those that are the `same`."""

    def steps(self) -> Streams:
        """What an earlier version kept, in the form of this one."""
        sizes, same, moments = iter(self.sizes), iter(self.same), iter(self.times)
        places: list[int] = []
        times: list[float] = []
        reads: list[int] = []
        writes: list[int] = []
        for kind in self.order:
            if kind > 1:
                places.append(len(times))
                continue
            times.append(times[-1] if next(same) else next(moments))
            reads.append(0)
            writes.append(0)
            (writes if kind else reads)[-1] = next(sizes)
        return Streams(self.clock, places, reads, writes, self.data, times)


_read_settings = msgspec.json.Decoder(lines.Settings).decode
_read_recording = msgspec.json.Decoder(Recording).decode


class About(msgspec.Struct, frozen=True):
    """What an archive finds a recording by, and what it looks for earlier bodies by."""

    name: str
    at: float
    kind: lines.ExchangeKind
    is_special: bool
    """Is it kept longer than others?"""
    whose: Belonging
    key: str = ""
    dialect: str = ""
    upstream: str = ""
    model: str = ""
    """The upstream's."""


class Parted(msgspec.Struct, frozen=True, kw_only=True):
    """One recording in parts, which other recordings may share."""

    head: bytes
    """Without what the other parts hold: an `ExchangeHead`, or a recording as JSON. Of the settings it has `kept`, which every
    request has for itself."""
    about: About
    settings: bytes
    """The others, as JSON: most requests have the same."""
    bodies: list[bytes]
    """The client's, and each attempt's."""
    streams: Streams

    @classmethod
    def of(cls, recording: Recording) -> Parted:
        """A recording that came from elsewhere, in parts."""
        bodies = [recording.request.body.data]
        others: list[Happened] = []
        places: list[int] = []
        times: list[float] = []
        reads: list[bytes] = []
        writes: list[bytes] = []
        for line in recording.happened:
            if isinstance(line, lines.Read | lines.Write):
                times.append(line.t)
                data = line.body.data
                reads.append(data if isinstance(line, lines.Read) else b"")
                writes.append(data if isinstance(line, lines.Write) else b"")
                continue
            if isinstance(line, lines.Attempt):
                bodies.append(line.body.data)
                line = msgspec.structs.replace(line, body=Payload())
            places.append(len(times))
            others.append(line)
        bare = msgspec.structs.replace(
            recording,
            settings=lines.Settings(kept=recording.settings.kept),
            request=msgspec.structs.replace(recording.request, body=Payload()),
            happened=tuple(others),
        )
        return cls(
            head=msgspec.json.encode(bare),
            about=about(recording),
            settings=msgspec.json.encode(msgspec.structs.replace(recording.settings, kept=None)),
            bodies=bodies,
            streams=Streams.of(0.0, places, times, reads, writes),
        )

    @property
    def size(self) -> int:
        """Bytes of all that came and went."""
        return len(self.settings) + sum(map(len, self.bodies)) + self.streams.size

    def whole(self) -> Recording:
        """The recording, put together again."""
        bare, streams = opened(self.head, self.about.whose, self.streams)
        return joined(bare, self.settings, self.bodies, streams)


def about(recording: Recording) -> About:
    """What an archive finds this recording by."""
    header, record = recording.header, recording.outcome.record
    return About(
        header.id,
        header.at,
        header.kind,
        verdict_of(record) != "ok" and header.kind != "refused",
        Belonging(header.program, header.session, header.agent, header.parent),
        record.get("key", ""),
        record.get("dialect", ""),
        record.get("upstream", ""),
        record.get("upstream_model", ""),
    )


def opened(head: bytes, whose: Belonging, streams: Streams, fields: tuple[str, ...] = FIELDS) -> tuple[Recording, Streams]:
    """A head as a recording, and streams that know the places of what else happened. `fields` are those of the version that
    made the head."""
    if head.startswith(b"{"):
        return _read_recording(head), streams
    told = read_head(head)
    places = [place for place, *_ in told.happened]
    return bare_recording(told, whose, fields), msgspec.structs.replace(streams, clock=told.clock, places=places)


def joined(bare: Recording, settings_json: bytes, bodies: Sequence[bytes], streams: Streams) -> Recording:
    """A recording of its parts."""
    client, *attempts = bodies
    rest = iter(attempts)
    others = [
        msgspec.structs.replace(line, body=Payload.of(next(rest))) if isinstance(line, lines.Attempt) else line
        for line in bare.happened
    ]
    settings = _read_settings(settings_json)
    if bare.settings.kept is not None:
        settings = msgspec.structs.replace(settings, kept=bare.settings.kept)
    return msgspec.structs.replace(
        bare,
        settings=settings,
        request=msgspec.structs.replace(bare.request, body=Payload.of(client)),
        happened=streams.lines(others),
    )


def cut(data: bytes, sizes: Iterable[int], at: int = 0) -> tuple[list[bytes], int]:
    """Pieces of these sizes from there on, and where they end."""
    ends = list(accumulate(sizes, initial=at))
    return [data[start:end] for start, end in pairwise(ends)], ends[-1]

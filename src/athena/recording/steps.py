"""The notes of one request while it is recorded: flat lists on the event loop, packs of reads and writes as they grow.

What a note is, `NotingTap` says.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from athena.dialects.plain_reads import SplicedRecord
from athena.recording.parted import Streams, cut
from athena.recording.secrets import Mask
from athena.serving.tap import Occurrence

_LARGE = 1024
"""Bytes of the steps of one pack, on the average, from which on they are not copied together."""
_RUN = 8
"""Steps of one kind that follow one another, from which on they become a pack."""
_BYTES = (bytes, bytes)


class StepPack:
    """Some steps that followed one another: when, what came, and what left for it. It is never changed."""

    __slots__ = ("read_sizes", "reads", "spliced", "times", "write_sizes", "writes")

    def __init__(self, notes: list[Any], spliced: SplicedRecord | None) -> None:
        """`spliced`: all of these notes are texts that this makes records of."""
        reads = notes[1::3]
        writes = [] if spliced is not None else notes[2::3]
        self.spliced = spliced
        self.times = array("d", notes[::3])
        self.read_sizes = array("Q", map(len, reads))
        self.write_sizes = array("Q", map(len, writes))
        is_large = sum(self.read_sizes) + sum(self.write_sizes) > _LARGE * len(reads)
        self.reads: list[bytes] = reads if is_large else [b"".join(reads)]
        """Pieces that are together all bytes that were read."""
        self.writes: list[bytes] = writes if is_large else [b"".join(writes)]


Row: TypeAlias = StepPack | list[Any]
"""Steps in a pack, or notes as they are."""


def gathered(notes: list[Any]) -> list[Row]:
    """The same notes in as few objects as hold them. Runs of steps of one kind are packed: texts of one record, or bytes. What
    stands between them is left as it is."""
    left = notes[2::3]
    kinds = list(zip(map(type, notes[1::3]), map(type, left), strict=True))
    rows: list[Row] = []
    others: list[Any] = []
    at = 0
    while at < len(left):
        record = left[at] if kinds[at][1] is SplicedRecord else None
        end = _run_end(left, at) if record is not None else _run_end(kinds, at) if kinds[at] == _BYTES else at + 1
        if end - at < _RUN:
            others += notes[3 * at : 3 * end]
        else:
            if others:
                rows.append(others)
                others = []
            rows.append(StepPack(notes[3 * at : 3 * end], record))
        at = end
    if others:
        rows.append(others)
    return rows


def reads_in(row: Row) -> int:
    """How many reads of an upstream these are."""
    if isinstance(row, StepPack):
        return len(row.times) if row.spliced is not None else sum(map(bool, row.read_sizes))
    came = zip(row[1::3], row[2::3], strict=True)
    return sum(type(left) is SplicedRecord or (bool(what) and type(what) is not Occurrence) for what, left in came)


def _run_end(items: Sequence[Any], at: int) -> int:
    """Where the items end that follow one another from `at` on and are equal to the one there."""
    first = items[at]
    end = at + items[at:].count(first)
    if items[at:end] == [first] * (end - at):
        return end
    return next(number for number in range(at, len(items)) if items[number] != first)  # others stand between them


_read_texts = msgspec.json.Decoder(list[str]).decode
_NO_BYTES = ((b"", b""),)
_NO_SPLICE = 0, 0, None


class Steps:
    """All notes of a request so far, parted into steps and whatever else happened."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.times = array("d")
        self.happened: list[tuple[int, Occurrence, float, Any]] = []
        """For each thing that is neither read nor written: the step that it stands before, what, when, and what it holds."""
        self._bursts: list[tuple[int, int, int]] = []
        self._read_sizes: list[int] = []
        self._write_sizes: list[int] = []
        self._splices: list[tuple[int, int, SplicedRecord]] = []
        self._reads: list[bytes] = []
        self._writes: list[bytes] = []
        self._texts: list[bytes] = []
        for row in rows:
            if isinstance(row, StepPack):
                self._take_pack(row)
            else:
                self._take_notes(row)

    def _take_pack(self, pack: StepPack) -> None:
        if pack.spliced is not None:
            self._splices.append((len(self.times), len(pack.times), pack.spliced))
            self._write_sizes += bytes(len(pack.times))
            self._texts += pack.reads
        else:
            self._write_sizes += pack.write_sizes.tolist()
            self._reads += pack.reads
            self._writes += pack.writes
        self.times += pack.times
        self._read_sizes += pack.read_sizes.tolist()

    def _take_notes(self, notes: list[Any]) -> None:
        # All in one loop: to call a method for a step takes longer than what it does.
        times, splices, reads, writes, texts = self.times, self._splices, self._reads, self._writes, self._texts
        read_sizes, write_sizes = self._read_sizes, self._write_sizes
        written = set(map(id, notes[2::3]))
        """Among them the reads for which all of their parts left, and nothing else."""
        bursts: dict[int, tuple[int, int]] = {}
        for when, what, more in zip(notes[::3], notes[1::3], notes[2::3], strict=True):
            parts: Sequence[tuple[bytes, bytes | SplicedRecord]]
            if type(what) is Occurrence:
                self.happened.append((len(times), what, when, more))
                continue
            if type(more) is list:
                self._bursts.append((*bursts[id(more)], len(times)))
                parts = _NO_BYTES
            elif type(what) is bytes:
                parts = ((what, more),)
            elif id(what) in written:
                bursts[id(what)] = len(times), len(what)
                parts = what
            else:
                came = [left.came(part) if type(left) is SplicedRecord else part for part, left in what]
                parts = ((b"".join(came), b""),)
            times.extend([when] * len(parts))
            for part, left in parts:
                read_sizes.append(len(part))
                if isinstance(left, bytes):
                    reads.append(part)
                    writes.append(left)
                    write_sizes.append(len(left))
                    continue
                texts.append(part)
                at = len(write_sizes)
                write_sizes.append(0)
                first, count, last = splices[-1] if splices else _NO_SPLICE
                if last is left and first + count == at:
                    splices[-1] = first, count + 1, last
                else:
                    splices.append((at, 1, left))

    def streams(self) -> Streams:
        """The same as streams that do not know yet where other things happened."""
        data, texts = b"".join(self._reads + self._writes), b"".join(self._texts)
        return Streams(0.0, [], self._read_sizes, self._write_sizes, data, self.times, self._splices, texts, self._bursts)

    def around(self) -> list[bytes]:
        """What stands around the texts of all records."""
        found: list[bytes] = []
        last = None
        for _, _, record in self._splices:
            if record is not last:
                last = record
                found += (record.head, record.tail, record.before, record.behind)
        return found

    def may_hide(self, mask: Mask, texts: bytes) -> bool:
        """May a record hold a secret that neither its text nor what stands around it shows? Between the two, or because the
        client got the text with other escapes. `texts` are those of all records."""
        if mask.has_quotes:
            return bool(self._splices)
        # Most texts have no escape at all, and that is seen at once.
        if b"\\" not in texts:
            return False
        if mask.is_plain and not mask.finds_escapes(texts):
            return False
        sizes = [size for first, count, _ in self._splices for size in self._read_sizes[first : first + count]]
        return mask.finds(msgspec.json.encode(_read_texts(b"[%b]" % b",".join(cut(texts, sizes)[0]))))

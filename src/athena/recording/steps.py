"""The reads and writes of one request while it is recorded: flat lists on the event loop, packs of them as they grow."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from athena.dialects.plain_reads import SplicedRecord
from athena.recording.parted import Streams, cut
from athena.recording.secrets import Mask

_LARGE = 1024
"""Bytes of the steps of one pack, on the average, from which on they are not copied together."""


class StepPack:
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


def packs_of(steps: list[Any]) -> list[StepPack]:
    """The steps in as few packs as hold them: texts of one record are a pack of their own."""
    left = steps[2::3]
    kinds = list(map(type, left))
    found: list[StepPack] = []
    at, size = 0, len(left)
    while at < size:
        record = left[at]
        if type(record) is SplicedRecord:
            end = at + left.count(record)
            if left[at:end] != [record] * (end - at):  # others stand between them
                end = next((number for number in range(at, size) if left[number] != record), size)
            found.append(StepPack(steps[3 * at : 3 * end], record))
        else:
            end = kinds.index(SplicedRecord, at) if SplicedRecord in kinds[at:] else size
            found.append(StepPack(steps[3 * at : 3 * end], None))
        at = end
    return found


_read_texts = msgspec.json.Decoder(list[str]).decode
_ESCAPES = (b"\\",)
_HIDING_ESCAPES = (b"\\u", b"\\/")
"""Those that may stand for a character that is also written without one."""


def _around(record: SplicedRecord) -> tuple[bytes, ...]:
    return record.head, record.tail, record.before, record.behind


class Steps:
    """All steps of a request so far."""

    def __init__(self, rows: list[Any], bursts: tuple[tuple[int, int, int], ...] = ()) -> None:
        """`rows` are packs, and last a list of steps that are not packed."""
        self.times: list[float] = []
        self._bursts = list(bursts)
        self._read_sizes: list[int] = []
        self._write_sizes: list[int] = []
        self._splices: list[tuple[int, int, SplicedRecord]] = []
        self._reads: list[bytes] = []
        self._writes: list[bytes] = []
        self._texts: list[bytes] = []
        for pack in rows[:-1]:
            self._take_pack(pack)
        self._take_steps(rows[-1][:])

    def _take_pack(self, pack: StepPack) -> None:
        if pack.spliced is not None:
            self._splices.append((len(self.times), len(pack.times), pack.spliced))
            self._write_sizes += bytes(len(pack.times))
            self._texts += pack.reads
        else:
            self._write_sizes += pack.write_sizes.tolist()
            self._reads += pack.reads
            self._writes += pack.writes
        self.times += pack.times.tolist()
        self._read_sizes += pack.read_sizes.tolist()

    def _take_steps(self, steps: list[Any]) -> None:
        at, last = len(self.times), None
        for came, left in zip(steps[1::3], steps[2::3], strict=True):
            if type(left) is SplicedRecord:
                self._texts.append(came)
                self._write_sizes.append(0)
                if left == last:
                    first, count, _ = self._splices[-1]
                    self._splices[-1] = first, count + 1, left
                else:
                    self._splices.append((at, 1, left))
                last = left
            else:
                self._reads.append(came)
                self._writes.append(left)
                self._write_sizes.append(len(left))
                last = None
            at += 1
        self.times += steps[::3]
        self._read_sizes += map(len, steps[1::3])

    def streams(self) -> Streams:
        """The same as streams that do not know yet where other things happened."""
        data, texts = b"".join(self._reads + self._writes), b"".join(self._texts)
        return Streams(0.0, [], self._read_sizes, self._write_sizes, data, self.times, self._splices, texts, self._bursts)

    def may_hide(self, mask: Mask) -> bool:
        """May a record hold a secret that its text does not show? In what stands around the text, between the two, or because
        the client got the text with other escapes."""
        if not self._splices:
            return False
        if mask.has_quotes:
            return True
        records = {id(record): record for _, _, record in self._splices}.values()
        if any(mask.finds(part) for record in records for part in _around(record)):
            return True
        escapes = _HIDING_ESCAPES if mask.is_plain else _ESCAPES
        if not any(escape in part for part in self._texts for escape in escapes):
            return False
        sizes = [size for first, count, _ in self._splices for size in self._read_sizes[first : first + count]]
        texts, _ = cut(b"".join(self._texts), sizes)
        return mask.finds(msgspec.json.encode(_read_texts(b"[%b]" % b",".join(texts))))

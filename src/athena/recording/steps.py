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


def _around(record: SplicedRecord) -> tuple[bytes, ...]:
    return record.head, record.tail, record.before, record.behind


class Steps:
    """All steps of a request so far."""

    def __init__(self, rows: list[Any], bursts: tuple[tuple[int, int, int], ...] = ()) -> None:
        self._bursts = list(bursts)
        packs: list[StepPack] = [*rows[:-1], *packs_of(rows[-1][:])]
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

    def streams(self) -> Streams:
        """The same as streams that do not know yet where other things happened."""
        whole = [pack for pack in self._packs if pack.spliced is None]
        pieces = [piece for pack in whole for piece in pack.reads]
        pieces += [piece for pack in whole for piece in pack.writes]
        texts = [piece for pack in self._packs if pack.spliced is not None for piece in pack.reads]
        sizes = self.read_sizes, self.write_sizes
        return Streams(0.0, [], *sizes, b"".join(pieces), self.times, self.splices, b"".join(texts), self._bursts)

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

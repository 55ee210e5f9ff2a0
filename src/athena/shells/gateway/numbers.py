"""Counters, gauges and histograms in memory that several serving processes share, and their text for Prometheus.

The parent makes one area of memory for the place of each process, before it forks. A process writes to the area of its place
only, and the process that is asked reads all of them and adds them up. A process that dies loses nothing: its area stays, and
the next process in that place counts on from there.

An area is a row of records: what the series is called, then its values. Records are only ever appended, and the length in
front is moved last, so a reader never sees half of one. Values are aligned and eight bytes long, so none is seen half written.
The text is the exposition format 0.0.4.
"""

from __future__ import annotations

import logging
import math
import mmap
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

LOG = logging.getLogger("athena")
MetricKind = Literal["counter", "gauge", "histogram"]
Key = tuple[str, ...]
"""A family's name and the label values of one of its series."""

_AREA_BYTES = 4 * 1024 * 1024  # what is not written to costs no memory
_RECORD = struct.Struct("=II")
"""Length of the key and number of values; the key follows, padded to eight bytes, then the values."""
_WORD = 8
_read_key = msgspec.json.Decoder(Key).decode


class Area:
    """The shared memory in which one server process counts."""

    def __init__(self, size: int = _AREA_BYTES) -> None:
        self._memory = mmap.mmap(-1, size)
        view = memoryview(self._memory)
        self.values = view.cast("d")
        self._bytes = view
        self._length = view[:_WORD].cast("Q")

    def append(self, key: Key, count: int) -> int:
        """A new series with that many values, all zero: the index of the first. 0 if there is no room."""
        name = msgspec.json.encode(key)
        begin = self._length[0] or _WORD
        first = begin + _RECORD.size + _padded(len(name))
        end = first + count * _WORD
        if end > len(self._bytes):
            return 0
        _RECORD.pack_into(self._bytes, begin, len(name), count)
        self._bytes[begin + _RECORD.size : begin + _RECORD.size + len(name)] = name
        self._length[0] = end
        return first // _WORD

    def series(self) -> Iterator[tuple[Key, int, int]]:
        """Every series: its key, the index of its first value, how many it has."""
        position, end = _WORD, self._length[0]
        while position < end:
            size, count = _RECORD.unpack_from(self._bytes, position)
            begin = position + _RECORD.size
            key = _read_key(self._bytes[begin : begin + size])
            first = begin + _padded(size)
            yield key, first // _WORD, count
            position = first + count * _WORD


def _padded(size: int) -> int:
    return -(-size // _WORD) * _WORD


class Series:
    """One number of a metric: its labels and its place in the area."""

    __slots__ = ("_first", "_values")

    def __init__(self, values: memoryview[float], first: int) -> None:
        self._values = values
        self._first = first

    def inc(self, amount: float = 1.0) -> None:
        self._values[self._first] += amount

    def dec(self, amount: float = 1.0) -> None:
        self._values[self._first] -= amount

    def set(self, value: float) -> None:
        self._values[self._first] = value


class Distribution:
    """How often a value fell where: a count for each bucket and one beyond them all, then the sum."""

    __slots__ = ("_bounds", "_first", "_sum", "_values")

    def __init__(self, values: memoryview[float], first: int, bounds: tuple[float, ...]) -> None:
        self._values = values
        self._first = first
        self._bounds = bounds
        self._sum = first + len(bounds) + 1

    def observe(self, value: float) -> None:
        values = self._values
        values[self._first + bisect_left(self._bounds, value)] += 1
        values[self._sum] += value


class Numbers:
    """The areas of all places, and which of them is ours."""

    def __init__(self, areas: Sequence[Area] | None = None, place: int = 0) -> None:
        self._areas = areas if areas is not None else (Area(),)
        self._own = self._areas[place]
        self._known = {key: first for key, first, _ in self._own.series()}
        self._families: dict[str, Family] = {}
        self._functions: dict[Key, Callable[[], float]] = {}
        self._is_full = False
        self._nowhere = memoryview(bytearray(128 * _WORD)).cast("d")
        """Where a series without room counts, which is not exported."""

    # -- making ------------------------------------------------------------------------------------------------------------

    def counter(self, name: str, text: str, labels: Key = ()) -> Counter:
        return Counter(self, name + "_total", "counter", text, labels)

    def gauge(self, name: str, text: str, labels: Key = (), *, lowest: bool = False) -> Gauge:
        """A number of this moment. Over all processes it is their sum, or their lowest."""
        return Gauge(self, name, "gauge", text, labels, lowest=lowest)

    def histogram(self, name: str, text: str, labels: Key, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(self, name, "histogram", text, labels, buckets)

    def enter(self, family: Family) -> None:
        """A family is made: take over its series from a process that was here before. What was true for it alone is over."""
        self._families[family.name] = family
        if family.kind == "gauge":
            for key, first in self._known.items():
                if key[0] == family.name:
                    self._own.values[first] = math.nan if family.lowest else 0.0

    def place_of(self, key: Key, count: int) -> tuple[memoryview[float], int]:
        """Where a series of ours keeps its values."""
        first = self._known.get(key, 0) or self._own.append(key, count)
        if not first:
            if not self._is_full:
                self._is_full = True
                LOG.warning("no room for more series in /metrics; %s and those after it are not counted", key[0])
            return self._nowhere, 0
        self._known[key] = first
        return self._own.values, first

    def set_function(self, key: Key, function: Callable[[], float]) -> None:
        """Ask for a gauge's value whenever it is to be shown or shared."""
        self._functions[key] = function
        self._refresh_one(key, function)

    def refresh(self) -> None:
        """Write down what functions say, for other processes to read."""
        for key, function in self._functions.items():
            self._refresh_one(key, function)

    def _refresh_one(self, key: Key, function: Callable[[], float]) -> None:
        values, first = self.place_of(key, 1)
        values[first] = function()

    # -- showing -----------------------------------------------------------------------------------------------------------

    def render(self) -> bytes:
        """The numbers of all places, added up."""
        self.refresh()
        found: dict[str, dict[Key, list[float]]] = {name: {} for name in self._families}
        for area in self._areas:
            for key, first, count in area.series():
                family = self._families.get(key[0])
                if family is None or count != family.width:
                    continue
                values = list(area.values[first : first + count])
                known = found[family.name].get(key[1:])
                found[family.name][key[1:]] = values if known is None else family.together(known, values)
        lines: list[str] = []
        for name, family in self._families.items():
            lines += (f"# HELP {name} {family.text}", f"# TYPE {name} {family.kind}")
            for labels, values in found[name].items():
                lines += family.lines(labels, values)
        return ("\n".join(lines) + "\n").encode()


class Family:
    """A metric with all its series."""

    width = 1
    """How many values a series has."""

    def __init__(self, numbers: Numbers, name: str, kind: MetricKind, text: str, labels: Key, *, lowest: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.text = text
        self.lowest = lowest
        self._label_names = labels
        self._numbers = numbers
        numbers.enter(self)

    def together(self, one: list[float], other: list[float]) -> list[float]:
        """The values of two processes as one."""
        if self.lowest:
            return [
                min((value for value in pair if not math.isnan(value)), default=math.nan)
                for pair in zip(one, other, strict=True)
            ]
        return [left + right for left, right in zip(one, other, strict=True)]

    def lines(self, labels: Key, values: list[float]) -> list[str]:
        return [] if math.isnan(values[0]) else [f"{self.name}{self._braces(labels)} {_number(values[0])}"]

    def _braces(self, labels: Key, *more: str) -> str:
        pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(self._label_names, labels, strict=True)]
        pairs = sorted([*pairs, *more])
        return "{" + ",".join(pairs) + "}" if pairs else ""


class Counter(Family):
    def __init__(self, numbers: Numbers, name: str, kind: MetricKind, text: str, labels: Key, *, lowest: bool = False) -> None:
        super().__init__(numbers, name, kind, text, labels, lowest=lowest)
        self._series: dict[Key, Series] = {}
        if not labels:
            self.labels()  # there from the start: a rate needs its zero

    def labels(self, *values: str) -> Series:
        """The series of these label values, in the order of the family's labels."""
        known = self._series.get(values)
        if known is None:
            known = self._series[values] = Series(*self._numbers.place_of((self.name, *values), 1))
        return known


class Gauge(Counter):
    def set_function(self, function: Callable[[], float], *values: str) -> None:
        """The series of these label values is what the function says."""
        self._numbers.set_function((self.name, *values), function)


class Histogram(Family):
    def __init__(
        self, numbers: Numbers, name: str, kind: MetricKind, text: str, labels: Key, buckets: tuple[float, ...]
    ) -> None:
        self.width = len(buckets) + 2
        super().__init__(numbers, name, kind, text, labels)
        self._buckets = buckets
        self._series: dict[Key, Distribution] = {}

    def labels(self, *values: str) -> Distribution:
        """The series of these label values."""
        known = self._series.get(values)
        if known is None:
            place = self._numbers.place_of((self.name, *values), self.width)
            known = self._series[values] = Distribution(*place, self._buckets)
        return known

    def lines(self, labels: Key, values: list[float]) -> list[str]:
        """Buckets hold all that is not above them."""
        text: list[str] = []
        total = 0.0
        for bound, count in zip((*self._buckets, math.inf), values[:-1], strict=True):
            total += count
            edge = f'le="{_number(bound)}"'
            text.append(f"{self.name}_bucket{self._braces(labels, edge)} {_number(total)}")
        text.append(f"{self.name}_count{self._braces(labels)} {_number(total)}")
        text.append(f"{self.name}_sum{self._braces(labels)} {_number(values[-1])}")
        return text


def _number(value: float) -> str:
    return "+Inf" if value == math.inf else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

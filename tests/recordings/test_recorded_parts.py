"""What taps collect, taken apart and put together again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.dialects.plain_reads import SplicedRecord
from athena.recording import lines
from athena.recording.grouped import Grouping
from athena.recording.parted import OrderedStreams, Streams
from athena.recording.room import Room
from athena.recording.searched import LARGE, SearchedBodies
from athena.recording.served_by import SettingsMemo
from athena.recording.tap import RecordingTap
from athena.serving.record import RequestRecord
from athena.serving.settings import Retries
from athena.serving.shared import AnswerSettings
from athena.serving.tap import Asked
from athena.shells.recorder.packing import pack_streams, unpack_streams
from support.examples import examples


@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from((0, 1, 2, 7)), st.sampled_from((0.0, 0.25, 1 / 3)), st.binary(min_size=1, max_size=5)),
        max_size=20,
    ),
    st.floats(1, 1e6),
    st.booleans(),
)
def test_what_is_parted_is_whole_again(happened: list[tuple[int, float, bytes]], clock: float, is_old: bool) -> None:
    """Reads, writes and other lines in any order, some at one moment, some in the middle of a letter; also as older archives
    have them."""
    now, times = clock, []
    for _, wait, _ in happened:
        now += wait
        times.append(now)
    steps = [(time, kind, data) for time, (kind, _, data) in zip(times, happened, strict=True) if kind < 2]
    reads, writes = ([data if kind == wanted else b"" for _, kind, data in steps] for wanted in (0, 1))
    places, passed = [], 0
    for kind, _, _ in happened:
        if kind > 1:
            places.append(passed)
        else:
            passed += 1
    streams = Streams.of(clock, places, [time for time, _, _ in steps], reads, writes)
    if is_old:
        moments = [time for time, _, _ in steps]
        same = bytes(number > 0 and time == moments[number - 1] for number, time in enumerate(moments))
        old = OrderedStreams(
            clock,
            bytes(kind for kind, _, _ in happened),
            same,
            [len(data) for _, _, data in steps],
            streams.data,
            [time for time, is_same in zip(moments, same, strict=True) if not is_same],
        )
        assert old.steps() == streams
    others = [lines.Tick(number) for number, (kind, _, _) in enumerate(happened) if kind > 1]
    found = streams.lines(others)
    assert [type(line).__name__ for line in found] == [
        "Read" if kind == 0 else "Write" if kind == 1 else "Tick" for kind, _, _ in happened
    ]
    for line, (_, _, data), moment in zip(found, happened, times, strict=True):
        if isinstance(line, lines.Read | lines.Write):
            assert line.body.data == data
            assert clock + line.t == moment


RECORDS = (
    SplicedRecord(b'data: {"t":"', b'"}\n\n', b'event: d\ndata: {"text":', b"}\n\n", False),
    SplicedRecord(b'data: {"sk-in-the-frame":1,"t":"', b'","f":null}\n\n', b"", b"", True),
)
HIDDEN = ("sk-in-the-frame", "sk-plain-1234", 'a "quoted" secret', "schl\u00fcssel", 't":"sk-over', "back\\slash-1")
TEXTS = [
    "word ", "\n", "sk-plain-", "1234", "sk-over the border", "", "schl\u00fcssel", *HIDDEN,
]  # fmt: skip


@examples(150)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.lists(st.lists(st.sampled_from(TEXTS), max_size=3).map("".join), max_size=3), st.booleans()
        ),
        max_size=150,
    ),
    st.sets(st.sampled_from(HIDDEN)),
)
@example([(0, ["sk-plain-1234"], True)], {"sk-plain-1234"})
@example([(0, ["a", "b"], False), (1, ["b"], False)], {"sk-in-the-frame"})
@example([(0, ['a "quoted" secret'], True), (0, ["schl\u00fcssel", "b"], True)], {'a "quoted" secret', "schl\u00fcssel"})
@example([(1, ['a "quote",', ",", ',\n"'], True), (0, ['a "quote",', ",", "\\"], True)], set())
def test_texts_alone_are_recorded_as_the_records_they_stand_for(
    steps: list[tuple[int, list[str], bool]], secrets: set[str]
) -> None:
    """Where reads are noted by their texts, the recording is the one of whole reads and writes, secrets masked in it or not."""
    taps = [next(taps_of_nothing()) for _ in range(2)]
    for number, (kind, texts, is_ascii) in enumerate(steps):
        now = 1000.0 + number
        strings = [json.dumps(text, ensure_ascii=is_ascii).encode() for text in texts]
        came = b",\n".join(strings)
        record = RECORDS[kind] if kind < len(RECORDS) else None
        if record is not None and texts and all(texts):
            read, written = (b"".join(map(made, strings)) for made in (record.came, record.left))
            assert (record.came(came), record.left(came)) == (read, written)
            taps[0].notes.extend((now, came, record))
            taps[1].passed(read, written, now, (came, record) if number % 2 else None)
        elif kind == 3 and texts and all(texts):
            read_in_parts(taps, came, strings, now, is_same=is_ascii)
        else:
            for tap in taps:
                tap.passed(b"read " + came, b"" if kind == 2 else b"written " + came, now)
        for tap in taps:
            if number % 60 == 7:
                tap.moment("keep_alive", now)
            if number % (5 + 64 * taps.index(tap)) == 4:
                tap.gather()
    one, other = (tap.made(sorted(secrets)) for tap in taps)
    assert one == other
    reads = sum(isinstance(line, lines.Read) for line in one.happened)
    assert [tap.reads for tap in taps] == [reads, reads]
    for secret in secrets:
        assert secret.encode() not in one.upstream_bytes + one.client_bytes
        assert msgspec.json.encode(secret)[1:-1] not in one.upstream_bytes + one.client_bytes
    kept = [taps[0].parted(sorted(secrets)).streams, None, taps[1].parted(()).streams]
    assert unpack_streams(pack_streams(kept)) == kept, "as an archive keeps it"


PIECES = [b"words ", b"sk-plain-", b"1234", "schl\u00fcssel".encode(), b'a \\"quoted\\" secret', b"\\u0073k-plain-1234", b"\\n"]


@examples(80)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((None, "", "athena", "sk-of-client-1", "sk-of-client-2")),
            st.integers(0, 5),
            st.lists(st.sampled_from([*PIECES, b"sk-of-client-1", b"sk-of-client-2"]), max_size=4).map(b"".join),
        ),
        max_size=8,
    ),
    st.sets(st.sampled_from(HIDDEN)),
)
@example([("sk-of-client-1", 0, b"sk-of-client-2"), ("sk-of-client-2", 1, b"sk-of-client-2")], set())
@example([(None, 2, b"sk-plain-1234"), (None, 3, b"sk-plain-1234"), (None, 5, b"sk-plain-1234")], {"sk-plain-1234"})
def test_exchanges_that_are_masked_together_are_masked_as_each_by_itself(
    exchanges: list[tuple[str | None, int, bytes]], secrets: set[str]
) -> None:
    """Wherever a secret stands, and whoever else sent a request at that time."""
    hidden, bodies, memo = tuple(sorted(secrets)), SearchedBodies(), SettingsMemo()
    for large in (b"", b" " * LARGE):
        taps = []
        for key, place, data in exchanges:
            tap = next(taps_of_nothing())
            tap._key = key
            assert tap.asked_as is not None
            said = data + large
            body = b'{"m":"%b","prompt_cache_key":"%b"}' % ((said, b"s") if place == 0 else (large, data))
            tap.asked_as = msgspec.structs.replace(tap.asked_as, body=body if place < 2 else large)
            if place == 2:
                tap.passed(b"read", data, 1000.0)
            if place == 3:
                tap.notes.extend((1000.0, b'"%b"' % data, RECORDS[0]))
            if place == 4:
                tap.record.error_message = data.decode()
            if place == 5:
                tap.passed(data[:7], b"", 1000.0)
                tap.passed(data[7:], b"", 1000.0)
            taps.append(tap)
        made = Grouping(hidden, memo, bodies, pytest.fail).groups([tap.packed() for tap in taps])
        members = [member for group in made for member in group.members]
        assert members == [tap.parted(hidden) for tap in taps]
        for group in made:
            held = (
                group.heads,
                group.plain,
                *(piece for each in group.members for piece in (each.streams.texts, *each.bodies)),
            )
            assert not any(secret.encode() in piece for secret in secrets for piece in held if secret.isascii())


@examples(200)
@given(
    st.lists(st.lists(st.sampled_from((b"a", b"ab", b"word", b"wor", b"d", b"rd" * 3)), max_size=12).map(b"".join), max_size=6),
    st.sampled_from((b"word", b"ab", b"dw", b"rdrd")),
    st.integers(1, 9),
)
def test_only_what_is_new_is_searched(bodies: list[bytes], word: bytes, part: int) -> None:
    known = SearchedBodies()
    with mock.patch("athena.recording.searched._PART", part):
        for body in bodies:
            searched = known.searched(("place",), body)
            assert [searched.holds(each) for each in (word, b"a", word)] == [each in body for each in (word, b"a", word)]


def test_searched_bodies_are_forgotten() -> None:
    known = SearchedBodies()
    for number in range(100):
        known.searched((number % 40,), b"x" * 1_000_000)
    assert known._bytes == sum(len(each.body) for each in known._last.values()) <= 16 * 1024 * 1024
    for number in range(100):
        known.searched((number,), b"x")
    assert len(known._last) == 32


@pytest.mark.parametrize("body", [b'{"prompt_cache_key":"sk-plain-1234"}', b'{"prompt_cache_key":"\\u0073k-plain-1234"}'])
def test_a_secret_that_names_a_session_is_masked(body: bytes) -> None:
    """A client may use its key as the name of its cache: an archive finds the recording by that."""
    tap = next(taps_of_nothing())
    assert tap.asked_as is not None
    tap.asked_as = msgspec.structs.replace(tap.asked_as, body=body)
    assert tap.parted(()).about.whose.session == "sk-plain-1234"
    parted = tap.parted(("sk-plain-1234",))
    assert (parted.about.whose.session, parted.whole().header.session) == ("***", "***")


def test_the_size_of_texts_is_that_of_their_records() -> None:
    """Of one record or of several, in reads of one text or of many."""
    texts = [b'"a"', b'"b",\n"cd"', b'"e, f",\n"",\n"g"']
    for records in (RECORDS[:1], RECORDS[1:], RECORDS):
        tap = next(taps_of_nothing())
        for number, text in enumerate(texts * 2):
            tap.notes.extend((1000.0, text, records[number // 2 % len(records)]))
            tap.passed(b"read", b"written", 1000.0)
        streams = tap.parted(()).streams
        assert streams.size == sum(map(len, (*streams.pieces()[0], *streams.pieces()[1])))


def test_half_a_character_in_a_failure_is_recorded() -> None:
    """An upstream may write one into its error as an escape; a head is then kept as JSON."""
    tap = next(taps_of_nothing())
    tap.record.error_message = "half \ud83d of it"
    tap.record.details.bad_calls["x"] = 1
    recording = tap.made(())
    assert recording.outcome.record["error_message"] == "half \ud83d of it"
    assert recording.outcome.details["bad_calls"] == {"x": 1}
    assert tap.packed().head.startswith(b"[")


def read_in_parts(taps: list[RecordingTap], came: bytes, strings: list[bytes], now: float, *, is_same: bool) -> None:
    """A read of which the first tap is told in parts, and the other one whole. `is_same`: what left is told by the parts."""
    record = RECORDS[len(strings) % 2]
    read = b"".join((b"before", *map(record.came, strings), b"after"))
    written = b"".join((*map(record.left, strings), b"left"))
    parts: list[tuple[bytes, bytes | SplicedRecord]] = [(b"before", b""), (came, record), (b"after", b"left")]
    one, other = taps
    one.notes.extend((now, parts, b""))
    other.upstream_bytes(read, now)
    if len(strings) > 1:
        for tap in taps:
            tap.moment("tick", now)
    if is_same:
        one.notes.extend((now + 0.5, b"", parts))
    else:
        one.client_bytes(written, now + 0.5)
    other.client_bytes(written, now + 0.5)


def taps_of_nothing() -> Iterator[RecordingTap]:
    """Taps of a request to which nothing has happened yet."""
    asked = Asked(
        now=1000.0, wall=5.0, method="POST", path="/v1/messages", query="", headers={}, body=b"{}", targets=(),
        answers=AnswerSettings(), retries=Retries(), correct=True,
    )  # fmt: skip
    while True:
        tap = RecordingTap(RequestRecord(request_id="req_1"), None, Room(1 << 30), lambda tap: None, version="test")
        tap.asked(asked)
        yield tap

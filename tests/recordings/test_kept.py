"""Where recordings are kept: the ring, the archive on disk, what happens when a disk fails, and who may read them over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from athena.model.request import Kept
from athena.recording import file, lines
from athena.recording.compare import difference
from athena.recording.filters import MOST_ROWS, Filter, Position
from athena.recording.lines import Recording
from athena.recording.packed import PackedExchange
from athena.recording.parted import Parted, opened
from athena.recording.replay import replay
from athena.recording.room import Room
from athena.recording.served_by import SettingsMemo
from athena.recording.show import row_of
from athena.recording.tap import RecordingTap
from athena.recording.view import ExchangeRow, ReplayResult, View
from athena.serving.record import FIELDS, RequestRecord
from athena.serving.serving import Serving
from athena.shells import daemon
from athena.shells.cli import cli, record
from athena.shells.config import RecordSettings, hash_key
from athena.shells.migrations import scripts
from athena.shells.recorder import sources
from athena.shells.recorder.archive import Archive
from athena.shells.recorder.packing import unpack
from athena.shells.recorder.recorder import DATABASE, Recorder
from athena.shells.recorder.ring import Ring, live_row
from athena.shells.recorder.sources import GatewaySource
from athena.shells.recorder.token import inspector_token
from athena.shells.recorder.writer import RecordingWriter
from athena.testing import replayed_upstream
from support.athena_process import serving
from support.config_file import load_config
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE
from support.plain_upstream import PlainUpstream, Reply
from support.serving_values import House, next_send

SAMPLE = Path(__file__).parents[1] / "cases" / "recordings" / "leaked_call.athena"
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "nobody", "is", "looking", "at", "all"]


def sample() -> Recording:
    return file.decode(SAMPLE.read_bytes())[0]


def named(name: str, at: float = 0.0, *, session: str = "", body: bytes | None = None, outcome: str = "ok") -> Recording:
    """The sample under another name."""
    recording = sample()
    record = {**recording.outcome.record, "outcome": outcome, "text_calls": 0}
    request = recording.request if body is None else msgspec.structs.replace(recording.request, body=lines.Payload.of(body))
    return msgspec.structs.replace(
        recording,
        header=msgspec.structs.replace(recording.header, id=name, at=recording.header.at + at, session=session),
        request=request,
        outcome=msgspec.structs.replace(recording.outcome, record=record),
    )


# -- the archive -------------------------------------------------------------------------------------------------------------


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    with Archive(tmp_path / "state" / DATABASE) as archive:
        first, again = archive.add([sample(), sample()])
        assert (first.id, again.id) == ("req_1", "req_1.2"), "clients may give two requests one id"
        assert archive.load("req_1") == archive.load("req_1.2") == sample()
        assert archive.load("nobody") is None
        assert archive.delete(["req_1", "nobody"]) == 1
        assert archive.load("req_1.2") == sample(), "what the other one holds stays"
        archive.delete(["req_1.2"])
        assert archive._database.execute("SELECT count(*) FROM blobs").fetchone()[0] == 0
    assert (tmp_path / "state" / DATABASE).stat().st_mode & 0o777 == 0o600
    with Archive(tmp_path / "state" / DATABASE) as archive:
        assert archive.count() == 0


def test_a_name_that_a_client_chose_is_given_to_nobody_else(tmp_path: Path) -> None:
    with Archive(tmp_path / "state" / DATABASE) as archive:
        names = [row.id for row in archive.add([named("req_1"), named("req_1.3"), named("req_1")])]
        assert len(set(names)) == 3
        assert [archive.load(name) is not None for name in names] == [True] * 3


def growing_session(turns: int) -> Iterator[tuple[Parted, int]]:
    """Turns of an agent, each with all turns before it, a header that differs each time, and a mark that moves; with the
    bytes that are new in each. The bodies are put together as bytes: ten thousand of them as JSON would take an hour."""
    tools = [{"name": f"tool_{number}", "description": " ".join(WORDS * 3)} for number in range(10)]
    tail = b'],"tools":%b,"stream":true}' % msgspec.json.encode(tools)
    dice, earlier, seen = random.Random(15), bytearray(), 0
    for turn in range(turns):
        text = " ".join(dice.choices(WORDS, k=40))
        asked, said = {"role": "user", "content": f"{turn} {text}"}, {"role": "assistant", "content": f"{text[::-1]} {turn}"}
        earlier += msgspec.json.encode(asked) + b","
        marked = msgspec.json.encode({**said, "cache_control": {"type": "ephemeral"}})
        body = b'{"model":"m","system":"cch=%d","messages":[%b%b%b' % (turn * 7919, bytes(earlier), marked, tail)
        earlier += msgspec.json.encode(said) + b","
        sent = b'{"messages":[%b%b' % (bytes(earlier[:-1]), tail)
        made = Parted.of(named(f"turn_{turn}", turn, session="s"))
        fresh = len(body) + len(sent) - seen
        seen = len(body) + len(sent)
        yield msgspec.structs.replace(made, bodies=[body, sent]), fresh + len(made.streams.data)


def test_a_growing_session_is_stored_once(tmp_path: Path) -> None:
    """In at most 1.2 times its unique bytes; 10,000 turns under `./dev soak`."""
    turns = 10_000 if os.environ.get("ATHENA_SOAK") else 120
    unique = 0
    last: Parted | None = None
    with Archive(tmp_path / DATABASE) as archive:
        for recording, fresh in growing_session(turns):
            archive.add_parted([recording])
            unique += fresh
            last = recording
        assert last is not None
        print(f"{turns} turns: {archive.bytes_used / unique:.2f} of their {unique / 1e6:.1f} MB of unique bytes")
        assert archive.bytes_used <= 1.2 * unique, (archive.bytes_used, unique)
        assert archive.load(f"turn_{turns - 1}") == last.whole()
        rows, cursor = archive.rows(Filter(session="s"), 50)
        assert [row.id for row in rows[:2]] == [f"turn_{turns - 1}", f"turn_{turns - 2}"]
        assert archive.rows(Filter(session="s"), 50, cursor)[0][0].id == f"turn_{turns - 51}"
        before = archive.before(rows[0])
        assert before is not None
        assert before[0] == f"turn_{turns - 2}"
        archive.delete([f"turn_{number}" for number in range(turns - 1)])
        assert archive.load(f"turn_{turns - 1}") == last.whole(), "what its turns are told by stays as long as it is needed"


def turns_of_a_session(count: int, wall: float) -> list[RecordingTap]:
    """Requests of one session, one after another, at times with more digits than a recording tells."""
    taps = list(made_taps(count))
    for number, tap in enumerate(taps):
        assert tap.asked_as is not None
        headers = {"x-claude-code-session-id": "s-1"}
        tap.asked_as = msgspec.structs.replace(tap.asked_as, wall=wall + number, headers=headers)
    return taps


@pytest.mark.parametrize("wall", [1763458000.1234567, 1763458000.1234562, 1763458000.123456])
@pytest.mark.parametrize("earlier_version", [False, True])
def test_a_request_is_not_compared_with_itself(tmp_path: Path, wall: float, earlier_version: bool) -> None:
    """The request before one in its session is another one, also where a database holds times with more digits."""
    taps = turns_of_a_session(5, wall)
    ring = Ring(most=10, most_bytes=1 << 20)
    with Archive(tmp_path / DATABASE) as archive:
        archive.put([tap.parted(()) for tap in taps])
        if earlier_version:
            for number in range(5):
                values = (wall + number, f"req_{number}")
                archive._database.execute("UPDATE exchanges SET at = ? WHERE name = ?", values)
        for tap in taps:
            ring.add(tap)
        for number, row in enumerate(reversed(archive.rows(Filter())[0])):
            before = f"req_{number - 1}" if number else None
            for found in (archive.before(row), ring.before(ring.row(row.id))):
                assert (found[0] if found is not None else None) == before


def test_times_are_the_same_in_a_row_and_in_the_database(tmp_path: Path) -> None:
    (tap,) = turns_of_a_session(1, 1763458000.1234567)
    with Archive(tmp_path / DATABASE) as archive:
        (row,) = archive.add_parted([tap.parted(())])
        assert archive._database.execute("SELECT at FROM exchanges").fetchone() == (row.at,)
        assert live_row(tap, ()).at == row.at


def followed(pages: Callable[[Position | None], tuple[list[ExchangeRow], Position | None]], most: int = 50) -> list[str]:
    """The names on all pages, from the first to the last."""
    rows, after = pages(None)
    names = [row.id for row in rows]
    while after is not None:
        assert len(names) < most, "it never ends"
        rows, after = pages(Position.of(after.cursor))
        assert rows, "a page follows that has nothing"
        names += [row.id for row in rows]
    return names


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("wall", [1763458000.1234567, 1763458000.1234562])
def test_pages_hold_every_exchange_once(tmp_path: Path, limit: int, wall: float) -> None:
    """Also those of one moment, and in databases whose times have more digits than rows."""
    taps = turns_of_a_session(8, wall)
    for tap in taps[3:6]:  # at one moment
        tap.asked_as = taps[3].asked_as
    ring = Ring(most=10, most_bytes=1 << 20)
    for tap in taps:
        ring.add(tap)
    with Archive(tmp_path / DATABASE) as archive:
        archive.put([tap.parted(()) for tap in taps])
        for tap in taps:
            assert tap.asked_as is not None
            values = (tap.asked_as.wall, tap.record.request_id)
            archive._database.execute("UPDATE exchanges SET at = ? WHERE name = ?", values)
        newest_first = [f"req_{number}" for number in reversed(range(8))]
        for kept in (archive, ring):
            assert followed(partial(kept.rows, Filter(), limit)) == newest_first
            for row in kept.rows(Filter(), 8)[0]:
                found = kept.rows(Filter(since=row.at, until=row.at), 8)[0]
                assert {each.id for each in found} == ({row.id} if row.id not in newest_first[2:5] else {*newest_first[2:5]})
            assert (kept.count(Filter()), kept.count(Filter(id="req_3")), kept.count(Filter(model="nobody"))) == (8, 1, 0)
    for wrong in ("", "1", "1_", "_1", "nan_1", "1.0_x", "inf_1", "1.0_" + "9" * 30):
        with pytest.raises(ValueError, match=r"convert|literal|no cursor"):
            Position.of(wrong)


def test_requests_in_flight_count_in_pages(tmp_path: Path) -> None:
    async def check() -> None:
        recorder = Recorder(RecordSettings(mode="memory"), "memory", tmp_path, tuple)
        house = House({"base_url": "http://127.0.0.1:1/v1", "retries": {"attempts": 0}}, recorder)
        servings = []
        for number in range(6):
            serving = house.serve({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
            serving.record.request_id = f"req_{number}"
            servings.append(serving)
        for number in (0, 2, 5):
            servings[number].close(1002.0)
        assert [row.state for row in (await recorder.page(Filter(), 10))[0]].count("live") == 3
        for limit in (1, 2, 4, 6, 7):
            names: list[str] = []
            rows, after = await recorder.page(Filter(), limit)
            names += [row.id for row in rows]
            while after is not None:
                assert len(rows) == limit
                rows, after = await recorder.page(Filter(), limit, after)
                names += [row.id for row in rows]
            assert sorted(names) == [f"req_{number}" for number in range(6)]
        assert await recorder.count(Filter()) == 6
        for serving in servings:
            serving.close(1003.0)

    asyncio.run(check())


def test_what_went_well_goes_first(tmp_path: Path) -> None:
    now = sample().header.at
    day = 86400.0
    with Archive(tmp_path / DATABASE) as archive:
        archive.add(
            [named("old", -8 * day), named("old_error", -8 * day, outcome="error"), named("older", -20 * day, outcome="error")]
        )
        assert sorted(archive.trim(max_bytes=1 << 30, max_age_days=14, now=now)) == ["old", "older"]
        archive.add([named(f"n{number}", number) for number in range(70)])
        gone = archive.trim(max_bytes=archive.bytes_used - 4096, max_age_days=14, now=now)
        assert gone[0] == "n0"
        assert "old_error" not in gone


@pytest.mark.parametrize("kind", ["refused", "passed"])
def test_what_nobody_served_goes_before_what_went_well(tmp_path: Path, kind: lines.ExchangeKind) -> None:
    """On disk, too: a stranger who is turned away again and again pushes out nothing that others went through."""

    def unserved(name: str, at: float) -> Recording:
        made = named(name, at)
        return msgspec.structs.replace(made, header=msgspec.structs.replace(made.header, kind=kind))

    with Archive(tmp_path / DATABASE) as archive:
        archive.add([named("served")])
        archive.add([unserved(f"n{number}", 1 + number) for number in range(200)])
        gone = archive.trim(max_bytes=archive.bytes_used - 4096, max_age_days=14, now=sample().header.at)
        assert gone
        assert "served" not in gone
        assert set(gone) <= {f"n{number}" for number in range(200)}
        old = archive.trim(max_bytes=1 << 30, max_age_days=14, now=sample().header.at + 8 * 86400.0)
        assert archive.count() == 0, old


def test_a_session_over_several_workers_is_stored_once_for_each(tmp_path: Path) -> None:
    """Each process has its own connection: that another one wrote must not make it forget what bodies are told by."""
    unique = 0
    kept: dict[str, Recording] = {}
    with Archive(tmp_path / DATABASE) as one, Archive(tmp_path / DATABASE) as other:
        for number, (recording, fresh) in enumerate(growing_session(120)):
            (one if number % 2 else other).add_parted([recording])
            unique += fresh
            kept[recording.about.name] = recording.whole()
        assert one.bytes_used <= 2 * 1.2 * unique, (one.bytes_used, unique)
        # What one deletes the other no longer tells anything by, whatever numbers come again.
        gone = [name for name in kept if name != "turn_3"]
        assert one.delete(gone) == len(gone)
        for number, (recording, _) in enumerate(growing_session(20)):
            again = msgspec.structs.replace(recording, about=msgspec.structs.replace(recording.about, name=f"again_{number}"))
            (one if number % 2 else other).add_parted([again])
            found = (other if number % 2 else one).load(f"again_{number}")
            assert found is not None
            assert found.request == recording.whole().request
        assert one.load("turn_3") == kept["turn_3"]


def test_a_newer_database_is_refused_and_an_older_one_is_brought_up(tmp_path: Path) -> None:
    with Archive(tmp_path / DATABASE) as archive:
        archive.add([sample()])
        archive._database.execute("PRAGMA user_version = 99")
    with pytest.raises(Exception, match="newer version"):
        Archive(tmp_path / DATABASE)


def older_database(path: Path, version: int, recording: Recording) -> None:
    """One exchange in the form that a database had in this version."""
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    parted = Parted.of(recording)
    bare, _ = opened(parted.head, parted.about.whose, parted.streams)
    row = msgspec.json.encode(row_of(bare, size=parted.size))
    told = bare if version > 1 else msgspec.structs.replace(bare, happened=parted.streams.lines(bare.happened))
    streams = msgspec.msgpack.encode((zlib.compress(msgspec.msgpack.encode(parted.streams)), parted.streams.times, 2))
    blobs = [parted.settings, *parted.bodies]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for script in scripts("athena.shells.recorder")[:version]:
            for statement in script.split(";\n"):
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {version}")
        values = (recording.header.id, recording.header.at, zlib.compress(row), zlib.compress(file.encode(told)))
        database.execute("INSERT INTO exchanges (name, at, session, weight, row, lines) VALUES (?, ?, '', 1, ?, ?)", values)
        for number, blob in enumerate(blobs, 1):
            kept = (number, b"%d" % number, zlib.compress(blob))
            database.execute("INSERT INTO blobs (number, digest, uses, data) VALUES (?, ?, 1, ?)", kept)
            if version < 3:
                database.execute("INSERT INTO parts VALUES (1, ?, ?)", (number - 1, number))
        if version > 1:
            database.execute("UPDATE exchanges SET streams = ?", (streams,))
        if version > 2:
            database.execute("UPDATE exchanges SET parts = ?", (json.dumps([*range(1, len(blobs) + 1)]),))
        if version > 3:
            first = msgspec.msgpack.encode(
                [(msgspec.structs.replace(parted.streams, data=b"", times=[]), len(parted.streams.data))]
            )
            texts = ([b""],) if version > 4 else ()
            packed = zlib.compress(first + parted.streams.data)
            group = msgspec.msgpack.encode((len(first), packed, [parted.streams.times], *texts))
            whose = msgspec.structs.astuple(parted.about.whose)
            kept_heads = (
                msgspec.msgpack.encode((FIELDS, [(parted.head, whose)])) if version > 4 else msgspec.json.encode([bare])
            )
            heads = zlib.compress(kept_heads)
            database.execute("INSERT INTO groups (uses, heads, streams) VALUES (1, ?, ?)", (heads, group))
            size = (parted.size,)
            database.execute("UPDATE exchanges SET row = x'', lines = x'', streams = NULL, grouped = 1, size = ?", size)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_an_older_database_keeps_what_it_holds(tmp_path: Path, version: int) -> None:
    older_database(tmp_path / "state" / DATABASE, version, sample())
    with Archive(tmp_path / "state" / DATABASE) as archive:
        assert archive.load("req_1") == sample()
        archive.add([named("other", 1, session="s")])
        assert [row.id for row in archive.rows(Filter())[0]] == ["other", "req_1"]
        assert archive.rows(Filter())[0][1] == row_of(sample(), size=Parted.of(sample()).size)
        assert archive.delete(["req_1", "other"]) == 2
        assert archive._database.execute("SELECT count(*) FROM blobs").fetchone()[0] == 0


def test_what_is_deleted_is_gone_from_what_was_written_with_it(tmp_path: Path) -> None:
    """Exchanges that were written together are packed together: each can go without the others."""
    group = [named(f"n{number}", number) for number in range(5)]
    with Archive(tmp_path / DATABASE) as archive:
        archive.add(group)
        left = {each.header.id: each for each in group}
        for name in ("n2", "n0", "n4", "n3", "n1"):
            assert {row.id for row in archive.rows(Filter())[0]} == set(left)
            assert all(archive.load(other) == recording for other, recording in left.items())
            del left[name]
            assert archive.delete([name]) == 1
            heads = archive._database.execute("SELECT heads FROM groups").fetchall()
            assert all(name.encode() not in unpack(packed) for (packed,) in heads)
        assert archive._database.execute("SELECT count(*) FROM groups").fetchone()[0] == 0


def test_what_is_kept_of_a_response_is_its_own(tmp_path: Path) -> None:
    """Settings are remembered from one request to the next; the response that a request becomes is not."""
    memo: SettingsMemo = {}
    made = []
    for tap, name in zip(made_taps(3), ("resp_1", "resp_2", None), strict=True):
        assert tap.asked_as is not None
        tap.asked_as = msgspec.structs.replace(tap.asked_as, kept=Kept(id=name) if name else None)
        made.append(tap.parted((), memo))
    assert len({each.settings for each in made}) == 1
    with Archive(tmp_path / DATABASE) as archive:
        rows = archive.add_parted(made)
        assert [row.response for row in rows] == ["resp_1", "resp_2", ""]
        loaded = [archive.load(row.id) for row in rows]
    assert [each.settings.kept for each in loaded if each] == [{"id": "resp_1"}, {"id": "resp_2"}, None]


def test_the_ring_keeps_errors_longest() -> None:
    ring = Ring(most=4, most_bytes=1 << 20)
    for number, tap in enumerate(made_taps(6, failing={0})):
        ring.add(tap)
        assert len(ring) == min(number + 1, 4)
    assert [row.id for row in ring.rows(Filter(), 10)[0]] == ["req_5", "req_4", "req_3", "req_0"]
    small = Ring(most=100, most_bytes=1)
    assert small.add(next(made_taps(1)))[1] == ["req_0"], "an exchange that is larger than the ring does not stay"


def test_rows_of_the_ring_hold_no_secret() -> None:
    """In memory as on disk, finished or in flight: a client may use its key as the name of its cache or of its session."""
    secret = "sk-plain-1234"
    ring = Ring(most=4, most_bytes=1 << 20, secrets=lambda: (secret,))
    named = {"x-claude-code-session-id": f"of {secret}"}
    for headers in ({}, named):
        tap = next(made_taps(1))
        assert tap.asked_as is not None
        body = b'{"prompt_cache_key":"%b"}' % secret.encode()
        tap.asked_as = msgspec.structs.replace(tap.asked_as, body=body, headers=headers)
        tap.record.model = f"model {secret}"
        name, _ = ring.add(tap)
        for row in (ring.row(name), live_row(tap, (secret,))):
            assert secret not in repr(row)
            assert row.model == "model ***"
    assert ring.row(name).session == "of ***"


def made_taps(
    count: int,
    failing: set[int] = frozenset(),  # type: ignore[assignment]
    room: Room | None = None,
    first: int = 0,
) -> Iterator[RecordingTap]:
    """Requests that were served and recorded, numbered from `first` on."""
    found: list[RecordingTap] = []

    class Keeper:
        def wants_bodies(self) -> bool:
            return True

        def watch(self, record: RequestRecord, request: Any, key: str | None) -> RecordingTap:
            return RecordingTap(record, key, room or Room(1 << 30), found.append, version="test")

    house = House({"base_url": "http://127.0.0.1:1/v1", "retries": {"attempts": 0}}, Keeper())
    chunk = b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'
    for number in range(first, first + count):
        serving: Serving = house.serve({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
        serving.record.request_id = f"req_{number}"
        next_send(serving)
        serving.sending(1001.0)
        serving.head(500 if number in failing else 200, {"content-type": "text/event-stream"}, 1001.0)
        serving.data(b"{}" if number in failing else chunk, 1001.0)
        serving.end(None, 1002.0)
        if number in failing:
            next_send(serving)
        serving.close(1002.0)
        yield found[-1]


def test_what_does_not_fit_is_not_recorded_and_gives_its_room_back() -> None:
    room = Room(100)
    (tap,) = made_taps(1, room=room)
    assert not tap.is_whole
    tap.drop()
    assert room.taken - room.released == 0


# -- disks that fail ---------------------------------------------------------------------------------------------------------


def written(writer: RecordingWriter) -> None:
    """Wait until nothing waits any more."""
    until = time.monotonic() + PATIENCE
    while writer.waiting and time.monotonic() < until:
        with writer.written:
            writer.written.wait(0.1)
    assert not writer.waiting


@contextmanager
def running_writer(path: Path, lost: list[int], **more: Any) -> Iterator[RecordingWriter]:
    writer = RecordingWriter(path, tuple, max_bytes=1 << 30, max_age_days=36500, on_dropped=lost.append, **more)
    try:
        yield writer
    finally:
        writer.close()


@pytest.mark.parametrize("part", ["packed", "unmasked", "parted"])
def test_a_recording_that_cannot_be_made_takes_no_other_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Whether what passed cannot be put together, taken apart, or masked after a secret was found in it."""
    room, lost, made = Room(1 << 20), list[int](), getattr(PackedExchange, part, None) or RecordingTap.packed

    def fails_for_one(self: Any, *more: Any) -> Any:
        if getattr(self, "name", "") == "req_1" or (part == "packed" and self.record.request_id == "req_1"):
            raise ValueError("a fault of ours")
        return made(self, *more)

    monkeypatch.setattr(RecordingTap if part == "packed" else PackedExchange, part, fails_for_one)
    with running_writer(tmp_path / DATABASE, lost) as writer:
        writer._secrets = lambda: ("plain words",)
        for tap in made_taps(3, room=room):
            tap.record.error_message = "plain words"
            writer.put(tap)
        written(writer)
    with Archive(tmp_path / DATABASE) as archive:
        assert {row.id for row in archive.rows(Filter())[0]} == {"req_0", "req_2"}
        kept = archive.load("req_0")
    assert kept is not None
    assert kept.outcome.record["error_message"] == "***"
    assert (lost, room.taken - room.released) == ([1], 0)
    assert "request req_1 could not be recorded" in caplog.text


def test_a_broken_locked_or_full_database_drops_recordings_and_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken" / DATABASE
    broken.parent.mkdir(mode=0o700)
    broken.write_bytes(b"this is no database at all" * 1000)
    broken.chmod(0o600)
    lost: list[int] = []
    with running_writer(broken, lost) as writer:
        for tap in made_taps(3):
            writer.put(tap)
        written(writer)
    assert sum(lost) == 3
    assert "cannot be written" in caplog.text
    assert broken.read_bytes().startswith(b"this is no database"), "what is not ours is not replaced"

    locked = tmp_path / "locked" / DATABASE
    Archive(locked).close()
    lost.clear()
    with closing(sqlite3.connect(locked, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with running_writer(locked, lost, lock_s=0.05) as writer:
            for tap in made_taps(2):
                writer.put(tap)
            written(writer)
    assert sum(lost) == 2

    full = tmp_path / "full" / DATABASE
    lost.clear()
    migrated = Archive._migrate

    def on_a_small_disk(archive: Archive) -> None:
        migrated(archive)
        # SQLite then says what it says on a full disk.
        pages = archive._database.execute("PRAGMA page_count").fetchone()[0]
        archive._database.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(Archive, "_migrate", on_a_small_disk)
    with running_writer(full, lost) as writer:
        for _ in range(3):
            for tap in made_taps(100):
                writer.put(tap)
            written(writer)
    assert sum(lost) > 0
    monkeypatch.undo()
    with Archive(full) as archive:
        assert archive.count() + sum(lost) == 300, "each is kept or counted as dropped"


@pytest.mark.parametrize("what", ["database", "directory", "replaced"])
def test_a_database_that_is_taken_away_is_made_again(tmp_path: Path, what: str) -> None:
    """Somebody clears the state directory while the gateway runs: what is written after that is found."""
    path, lost = tmp_path / "state" / DATABASE, list[int]()
    other = tmp_path / "other" / DATABASE
    with Archive(other) as archive:
        archive.add([named("req_other")])
    with running_writer(path, lost) as writer:
        for tap in made_taps(2):
            writer.put(tap)
        written(writer)
        if what == "directory":
            shutil.rmtree(path.parent)
        else:
            for end in ("", "-wal", "-shm"):
                Path(f"{path}{end}").unlink(missing_ok=True)
        if what == "replaced":
            other.rename(path)
        for tap in made_taps(3, first=2):
            writer.put(tap)
        written(writer)
    assert lost == []
    with Archive(path) as archive:
        found = {row.id for row in archive.rows(Filter())[0]}
    assert found == {"req_2", "req_3", "req_4"} | ({"req_other"} if what == "replaced" else set())


@pytest.mark.parametrize("part", ["put_groups", "trim"])
def test_a_fault_while_writing_or_trimming_does_not_end_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A page of a damaged database may hold what cannot be unpacked."""
    lost: list[int] = []
    monkeypatch.setattr("athena.shells.recorder.writer._TRIM_EVERY_S", -1.0)
    monkeypatch.setattr("athena.shells.recorder.writer._TRY_AGAIN_S", 0.0)
    with running_writer(tmp_path / DATABASE, lost) as writer:
        with monkeypatch.context() as broken:
            failed = threading.Event()

            def fails(self: Archive, *_: Any, **__: Any) -> None:
                failed.set()
                zlib.decompress(b"this was never packed")

            broken.setattr(Archive, part, fails)
            for tap in made_taps(2):
                writer.put(tap)
            written(writer)
            assert failed.wait(PATIENCE)
        for tap in made_taps(3, first=2):
            writer.put(tap)
        written(writer)
    dropped = 2 if part == "put_groups" else 0
    assert sum(lost) == dropped
    with Archive(tmp_path / DATABASE) as archive:
        assert archive.count() == 5 - dropped
    assert "recordings cannot be" in caplog.text


# -- over HTTP ---------------------------------------------------------------------------------------------------------------


class Asker:
    """Somebody who asks the inspector's data."""

    def __init__(self, gateway: GatewayThread, token: str) -> None:
        self.url = gateway.url + "/inspect/api"
        self.token = token

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, bytes]:
        data = json.dumps(body).encode() if body is not None else None
        sent = {"authorization": f"Bearer {self.token}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def json(self, path: str, method: str = "GET", body: Any = None) -> Any:
        status, answer = self.ask(path, method, body)
        assert status == 200, answer
        return json.loads(answer)

    def wait_for_rows(self, count: int) -> list[dict[str, Any]]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            rows = [row for row in self.json("/exchanges")["rows"] if row["state"] == "done"]
            if len(rows) >= count:
                return rows
            time.sleep(0.02)
        raise AssertionError("the exchange was not recorded")


TOOL: Any = {
    "type": "function",
    "function": {"name": "Read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}


def ask_model(gateway: GatewayThread, session: str = "s-1") -> Any:
    client = openai.OpenAI(base_url=gateway.url + "/v1", api_key="sk-mine-0123456789", max_retries=0)
    with client:
        return client.chat.completions.create(
            model="moonshotai/kimi-k2",
            messages=[{"role": "user", "content": "Read the secret file"}],
            tools=[TOOL],
            extra_headers={"x-session-id": session},
        )


@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_the_inspectors_data(tmp_path: Path, mode: str) -> None:
    """A leaked call, recorded and looked at, replayed with another format, exported, made a case, deleted."""
    began = time.time()
    with replayed_upstream(SAMPLE) as upstream:
        config = {"base_url": upstream.url + "/v1", "state_dir": str(tmp_path / "state"), "record": {"mode": mode}}
        with running_gateway(config, tmp_path) as gateway:
            asker = Asker(gateway, inspector_token(tmp_path / "state"))
            live: list[bytes] = []
            listening = threading.Thread(target=listen, args=(asker, live))
            listening.start()
            until = time.monotonic() + PATIENCE
            while not live and time.monotonic() < until:
                time.sleep(0.01)
            answer = ask_model(gateway)
            assert answer.choices[0].message.tool_calls[0].function.name == "Read"
            (row,) = asker.wait_for_rows(1)
            name = row["id"]
            assert (row["verdict"], row["text_calls"], row["session"]) == ("repaired", 1, "s-1")
            view = msgspec.convert(asker.json(f"/exchanges/{name}"), View)
            assert view.replay.equal, view.replay.differences
            assert view.calls[0].came_as == "text in reasoning, kimi_k2"
            changed = msgspec.convert(
                asker.json(f"/exchanges/{name}/replay", "POST", {"format": "off", "chunks": 7}), ReplayResult
            )
            assert not changed.equal
            assert changed.now.calls == []
            for body in ({"format": "nobody"}, {"what": 1}):
                assert asker.ask(f"/exchanges/{name}/replay", "POST", body)[0] == 400
            kept = asker.ask(f"/exchanges/{name}/export?keep_text=1")[1]
            (recording,) = file.decode(kept)
            assert b"secret file" in kept
            assert b"sk-mine" not in kept
            assert difference(recording, replay(recording)).differences == []
            clean = asker.ask(f"/exchanges/{name}/export")[1]
            assert b"secret file" not in clean
            assert file.decode(clean)[0].header.redacted
            assert b'"Read"' in asker.ask(f"/exchanges/{name}/case")[1]
            assert asker.json("/sessions")["sessions"][0]["id"] == "s-1"
            health = asker.json("/health")
            assert health["upstreams"][0]["leaks"] == 1
            assert began <= health["since"] <= row["at"], "nothing was counted before the gateway was there"
            assert asker.json("/health?since=5")["since"] == 5
            assert asker.json("/exchanges?repaired=1&model=kimi&q=s-1")["rows"][0]["id"] == name
            assert asker.json("/exchanges?outcome=error")["rows"] == []
            check_endpoints(asker, gateway, name)
            check_commands(tmp_path, gateway, name, disk=mode == "disk")
            assert asker.ask(f"/exchanges/{name}", "DELETE")[0] == 204
            assert asker.ask(f"/exchanges/{name}")[0] == 404
        listening.join(PATIENCE)
        said = b"".join(live)
        assert said.startswith(b"event: hello")
        assert b'"state":"live"' in said
        assert b'"verdict":"repaired"' in said
        assert b"event: gone" in said


def listen(asker: Asker, heard: list[bytes]) -> None:
    with urllib.request.urlopen(f"{asker.url}/live?token={asker.token}", timeout=PATIENCE) as answer:
        while part := answer.read1(65536):
            heard.append(part)


def check_endpoints(asker: Asker, gateway: GatewayThread, name: str) -> None:
    """Who is not let in."""
    stranger = Asker(gateway, "wrong")
    assert stranger.ask("/exchanges")[0] == 401
    assert stranger.ask(f"/exchanges?token={asker.token}", authorization="")[0] == 200
    assert asker.ask("/exchanges", origin="http://evil.example")[0] == 403
    assert asker.ask("/exchanges", sec_fetch_site="cross-site")[0] == 403
    assert asker.ask("/exchanges", host="evil.example")[0] in (403, 421)
    assert asker.ask("/exchanges", origin=gateway.url)[0] == 200
    assert asker.ask("/nothing")[0] == 404
    assert asker.ask("/exchanges?since=tomorrow")[0] == 400
    assert asker.ask("/exchanges?cursor=tomorrow")[0] == 400
    assert [asker.json(f"/exchanges?{query}")["total"] for query in ("", "model=nobody", "model=kimi")] == [1, 0, 1]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)


def check_commands(tmp_path: Path, gateway: GatewayThread, name: str, *, disk: bool) -> None:
    """The same at the command line."""
    where = ("--config", str(tmp_path / "athena.yml"), *(() if disk else ("--url", gateway.url)))
    listed = run("record", "list", *where, "--repaired")
    assert name in listed.output
    assert "1 in text" in listed.output
    shown = run("record", "show", name, *where, "--width", "140").output
    assert "UPSTREAM SENT" in shown
    assert "a call of Read was found in the model's" in " ".join(shown.split()) or "found in the" in shown
    file_name = tmp_path / f"out{disk}.athena"
    run("record", "export", name, *where, "-o", str(file_name))
    (clean,) = file.decode(file_name.read_bytes())
    assert clean.header.redacted
    assert run("replay", str(file_name)).return_value == 0
    assert run("replay", str(file_name), "--format", "off").return_value == 1
    case = run("replay", "--case", str(file_name)).output
    (tmp_path / "case.toml").write_text(case)
    assert run("replay", str(tmp_path / "case.toml")).return_value == 0
    assert run("replay", str(tmp_path / "case.toml"), "--format", "off").return_value == 1
    assert json.loads(run("record", "list", *where, "--json").output.splitlines()[0])["id"] == name


def test_commands_on_files(tmp_path: Path) -> None:
    (tmp_path / "athena.yml").write_text(
        json.dumps({"base_url": "http://127.0.0.1:9/v1", "state_dir": str(tmp_path / "s"), "port": 1})
    )
    where = ("--config", str(tmp_path / "athena.yml"))
    with pytest.raises(Exception, match="nothing is recorded"):
        run("record", "list", *where)
    assert run("record", "import", *where, str(SAMPLE)).output.strip() == "req_1"
    assert "kimi" in run("record", "list", *where).output
    redacted = run("record", "redact", str(SAMPLE)).output
    assert "src/main.py" not in redacted
    assert "deleted 1" in run("record", "delete", *where, "--outcome", "ok", "--yes").output
    assert run("record", "list", *where).output.strip() == "no exchanges"
    assert json.loads(run("record", "show", str(SAMPLE), "--json").output)["replay"]["equal"]
    copies = [tmp_path / "a.athena", tmp_path / "b.athena"]
    for copy in copies:
        copy.write_bytes(SAMPLE.read_bytes())
    run("record", "redact", *map(str, copies), "-o", str(copies[1]))
    assert len(file.decode(copies[1].read_bytes())) == 2, "the output may be one of the files that are read"


MANY = MOST_ROWS + 5
"""More exchanges than one page of a list holds."""


def configured(tmp_path: Path, **more: Any) -> tuple[str, str]:
    """The flags that name a configuration of its own."""
    settings = {"base_url": "http://127.0.0.1:9/v1", "state_dir": str(tmp_path / "state"), "port": 1, **more}
    (tmp_path / "athena.yml").write_text(json.dumps(settings))
    return "--config", str(tmp_path / "athena.yml")


def filled(tmp_path: Path, recordings: list[Recording]) -> list[str]:
    """An archive with these; returns their names, the newest first."""
    with Archive(tmp_path / "state" / DATABASE) as archive:
        archive.add(recordings)
        return [row.id for row in archive.rows(Filter(), 1000)[0]]


def test_a_filter_means_all_that_there_are(tmp_path: Path) -> None:
    """Not only those of the first page, neither from the archive nor from a gateway."""
    where = configured(tmp_path)
    names = filled(tmp_path, [named(f"n{number}", number) for number in range(MANY)])
    out = tmp_path / "all.athena"
    exported = run("record", "export", *where, "--outcome", "ok", "--keep-text", "-o", str(out))
    assert f"{MANY} exchanges" in exported.output
    assert [each.header.id for each in file.decode(out.read_bytes())] == names
    assert f"deleted {MANY}" in run("record", "delete", *where, "--outcome", "ok", "--yes").output
    assert run("record", "list", *where).output.strip() == "no exchanges"


def test_a_gateway_is_asked_page_by_page(tmp_path: Path) -> None:
    config = {"base_url": "http://127.0.0.1:9/v1", "state_dir": str(tmp_path / "state"), "record": {"mode": "disk"}}
    names = filled(tmp_path, [named(f"n{number}", number) for number in range(MANY)])
    with (
        running_gateway(config, tmp_path) as gateway,
        GatewaySource(gateway.url, inspector_token(tmp_path / "state")) as source,
    ):
        assert [row.id for row in source.rows(Filter())] == names
        assert [row.id for row in source.rows(Filter(), MANY - 2)] == names[:-2]
        assert [row.id for row in source.rows(Filter(), 2)] == names[:2]
        assert source.rows(Filter(id="n1", until=1.0)) == []


def test_progress_is_shown_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for stream, is_shown in ((terminal, True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert list(record._with_progress(list(range(200)), "exporting")) == list(range(200))
        assert list(record._with_progress([1, 2], "exporting")) == [1, 2]
        assert ("exporting" in stream.getvalue()) == is_shown


def listed(*where: str) -> list[str]:
    """The ids that the command lists."""
    return [json.loads(line)["id"] for line in run("record", "list", *where, "--json").output.splitlines()]


@pytest.mark.parametrize("found_by", ["port", "announcement"])
def test_commands_cover_the_gateway_and_the_archive(tmp_path: Path, found_by: str) -> None:
    """An import makes an archive on disk; what the running gateway holds in memory stays in sight."""
    with replayed_upstream(SAMPLE) as upstream:
        config = {"base_url": upstream.url + "/v1", "state_dir": str(tmp_path / "state"), "record": {"mode": "memory"}}
        with running_gateway(config, tmp_path) as gateway, daemon.Home(tmp_path / "state").announced() as announce:
            where = configured(tmp_path, port=gateway.port if found_by == "port" else 1)
            if found_by == "announcement":
                started = datetime.now(UTC).isoformat(timespec="seconds")
                announce(daemon.DaemonState(pid=1, port=gateway.port, start_time=started, config_path="", url=gateway.url))
            for _ in range(3):
                ask_model(gateway)
            held = [row["id"] for row in Asker(gateway, inspector_token(tmp_path / "state")).wait_for_rows(3)]
            assert run("record", "import", *where, str(SAMPLE)).output.strip() == "req_1"
            assert listed(*where) == [*held, "req_1"]
            assert listed(*where, "--limit", "2") == held[:2]
            for name in (held[1], "req_1"):
                assert json.loads(run("record", "show", name, *where, "--json").output)["row"]["id"] == name
            copy = str(tmp_path / "copy.athena")
            run("record", "export", held[0], *where, "--keep-text", "-o", copy)
            run("record", "import", *where, copy)
            assert listed(*where) == [*held, "req_1"], "one that is in both is listed once"
            run("record", "export", *where, "--outcome", "ok", "--keep-text", "-o", copy)
            assert [each.header.id for each in file.decode(Path(copy).read_bytes())] == [*held, "req_1"]
            assert "deleted 1" in run("record", "delete", held[0], *where, "--yes").output
            assert listed(*where) == [*held[1:], "req_1"]
            assert "deleted 3" in run("record", "delete", *where, "--outcome", "ok", "--yes").output
            assert listed(*where) == []


def test_a_session_is_meant_by_its_beginning(tmp_path: Path) -> None:
    where = configured(tmp_path)
    sessions = ["7f3a-1", "7f3a-2", "7f3b", "", "other 7f3a"]
    filled(tmp_path, [named(f"n{number}", number, session=session) for number, session in enumerate(sessions)])
    assert listed(*where, "--session", "7f3a") == ["n1", "n0"]
    assert listed(*where, "--session", "7f3a-1") == ["n0"]
    assert listed(*where, "--session", "7f") == ["n2", "n1", "n0"]
    assert listed(*where, "--session", "3a") == []
    ring = Ring(most=10, most_bytes=1 << 20)
    for tap in turns_of_a_session(2, 1000.0):
        ring.add(tap)
    assert ring.count(Filter(session="s")) == 2


def test_the_request_before_is_of_the_same_session() -> None:
    """Not of another one whose name begins as its own."""
    ring = Ring(most=10, most_bytes=1 << 20)
    for tap, session in zip(turns_of_a_session(3, 1000.0), ("s-1", "s-10", "s-1"), strict=True):
        assert tap.asked_as is not None
        headers = {"x-claude-code-session-id": session}
        tap.asked_as = msgspec.structs.replace(tap.asked_as, headers=headers)
        ring.add(tap)
    before = ring.before(ring.row("req_2"))
    assert before is not None
    assert before[0] == "req_0"


def test_filters_take_what_is_shown() -> None:
    """The words of the result column, and parts of names."""
    row = ExchangeRow(id="r", at=1.0, status=200, outcome="ok", verdict="repaired", upstream="acmecorp", program="claude-cli/2")
    refused = ExchangeRow(id="r", at=1.0, status=404, outcome="error", verdict="error", kind="refused", error="model_not_found")
    left = ExchangeRow(id="r", at=1.0, status=200, outcome="client_closed", verdict="left")
    for word, meant in (
        ("ok", [row]),
        ("repaired", [row]),
        ("200", [row, left]),
        ("error", [refused]),
        ("refused", [refused]),
        ("404", [refused]),
        ("model_not_found", [refused]),
        ("left", [left]),
        ("client_closed", [left]),
        ("served", []),
        ("nothing", []),
    ):
        assert [each for each in (row, refused, left) if Filter(outcome=word).holds(each)] == meant, word
    assert all(Filter(upstream=part).holds(row) for part in ("acme", "acmecorp", "CORP", "acme*"))
    assert all(Filter(program=part).holds(row) for part in ("claude", "cli", "Claude*"))
    assert not Filter(upstream="acme").holds(left)


def long_rows() -> list[ExchangeRow]:
    common: dict[str, Any] = {"at": 1763458000.0, "upstream": "openrouter", "upstream_model": "moonshotai/kimi-k2-0905"}
    return [
        ExchangeRow(
            id="req_4da648f9bf4faca7558008c1",
            model="openrouter/moonshotai/kimi-k2-0905",
            status=200,
            verdict="repaired",
            calls=3,
            text_calls=2,
            session="7f3a9d2c-1111-2222-3333-444455556666",
            duration_ms=123456.0,
            **common,
        ),
        ExchangeRow(
            id="req_2", model="漢字" * 6, status=404, verdict="error", kind="refused", error="model_not_found", **common
        ),
        ExchangeRow(id="r" * 300, model="m" * 3000, status=200, **common),
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140, 200])
def test_an_exchange_is_one_line_of_a_list(width: int) -> None:
    heading, *told = record._table_lines(long_rows(), width)
    assert len(told) == 3
    assert all(cell_len(line.plain) <= width for line in (heading, *told))
    assert {"time", "id", "model", "result"} <= set(heading.plain.split()), "no heading is cut"
    assert set(heading.plain.split()) <= {"time", "id", "model", "upstream", "session", "result", "calls", "seconds"}
    if width >= 80:
        assert "req_4da648f9bf4faca7558008c1" in told[0].plain, "an id is whole, to be pasted"
        assert "200 repaired" in told[0].plain
        assert "kimi-k2-0905" in told[0].plain, "the end of a model's name tells most"
    assert ("session" in heading.plain) == (width >= 140)
    assert ("7f3a9d2c" in told[0].plain) == (width >= 140)


def test_a_list_in_a_pipe_holds_all_and_is_not_padded_for_one_long_name() -> None:
    heading, *told = (line.plain for line in record._table_lines(long_rows(), None))
    assert "m" * 3000 in told[2]
    assert "2 in text" in told[0]
    assert "openrouter/moonshotai/kimi-k2-0905" in told[0]
    assert max(map(len, (heading, *told[:2]))) < 250


def test_another_gateway_lets_the_commands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the address with the token that it prints, or by a token or a key of the environment."""
    key, theirs, ours = "sk-0123456789abcdef", tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    filled(theirs, [named("n1")])
    where = configured(ours)
    config = {
        "base_url": "http://127.0.0.1:9/v1",
        "state_dir": str(theirs / "state"),
        "record": {"mode": "disk"},
        "keys": [{"name": "ci", "hash": hash_key(key)}],
    }
    with running_gateway(config, theirs) as gateway:
        token = inspector_token(theirs / "state")
        with pytest.raises(Exception, match="asks for its inspector's token or a gateway key") as refused:
            run("record", "list", *where, "--url", gateway.url)
        assert "ATHENA_INSPECT_TOKEN" in str(refused.value)
        assert "{" not in str(refused.value), "nobody wants to read JSON"
        for pasted in (f"/inspect?token={token}", f"/inspect/?token={token}#/exchanges/n1", f"/?token={token}"):
            assert listed(*where, "--url", gateway.url + pasted) == ["n1"]
        assert listed(*where, "--url", f"{gateway.url.removeprefix('http://')}/inspect?token={token}") == ["n1"]
        for shown in (key, token):
            monkeypatch.setenv("ATHENA_INSPECT_TOKEN", shown)
            assert listed(*where, "--url", gateway.url) == ["n1"]
        monkeypatch.setenv("ATHENA_INSPECT_TOKEN", "wrong-and-secret")
        with pytest.raises(Exception, match="asks for its inspector's token") as refused:
            run("record", "list", *where, "--url", gateway.url)
        assert "wrong-and-secret" not in str(refused.value)
    with PlainUpstream({"/inspect/api/exchanges": Reply({"hello": 1})}) as upstream:
        for url in (upstream.url, upstream.url + "/elsewhere"):
            with pytest.raises(Exception, match=r"is no gateway of Athena|says 404"):
                run("record", "list", *where, "--url", url)


@pytest.mark.parametrize(("url", "is_sent"), [("http://127.0.0.1:9", True), ("localhost:9", True), ("http://a.example", False)])
def test_this_machines_token_is_for_this_machine(
    url: str, is_sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATHENA_INSPECT_TOKEN", raising=False)
    shown: list[str] = []
    monkeypatch.setattr(sources, "GatewaySource", lambda address, token: shown.append(token))
    config = load_config({"state_dir": str(tmp_path)}, tmp_path)
    sources.source_of(config, url)
    assert shown == [inspector_token(tmp_path) if is_sent else ""]


def test_an_exact_id_wins(tmp_path: Path) -> None:
    """Also where newer exchanges begin with it."""
    where = configured(tmp_path)
    for _ in range(5):
        run("record", "import", *where, str(SAMPLE))
    for name in ("req_1", "req_1.2", "req_1.4"):
        assert json.loads(run("record", "show", name, *where, "--json").output)["row"]["id"] == "req_1"
    with pytest.raises(Exception, match="several exchanges begin with req_:"):
        run("record", "show", "req_", *where)
    assert "deleted 1" in run("record", "delete", "req_1", *where, "--yes").output
    assert listed(*where) == ["req_1.5", "req_1.4", "req_1.3", "req_1.2"]


def test_off_where_others_could_read_it(tmp_path: Path) -> None:
    from athena.shells.config import hash_key
    from athena.shells.recorder.recorder import record_mode
    from support.config_file import load_config

    def mode(bound: tuple[str, ...] | None, **more: Any) -> str:
        return record_mode(load_config({"base_url": "http://127.0.0.1:9/v1", **more}, tmp_path), bound)[1]

    keys = [{"name": "ci", "hash": hash_key("sk-0123456789abcdef")}]
    assert mode(("127.0.0.1", "::1")) == "memory"
    assert mode(("0.0.0.0",)) == "off"
    assert mode(None) == "off"
    assert mode(("127.0.0.1",), keys=keys) == "off"
    assert mode(("127.0.0.1",), keys=keys, record=True) == "disk"
    assert mode(("127.0.0.1",), record=False) == "off"


ANSWER = Reply(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi!"}, "finish_reason": "stop"}],
    }
)
REQUESTS = 20


def ask_often(url: str) -> None:
    """Requests whose bodies no one can make small; each must be answered whole."""
    dice = random.Random(15)
    for number in range(REQUESTS):
        body = {"model": "m", "messages": [{"role": "user", "content": f"{number} {dice.randbytes(6000).hex()}"}]}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert answer.status == 200
            assert json.load(answer)["choices"][0]["message"]["content"] == "Hi!"


def counted(url: str) -> dict[str, int]:
    """How many were kept and dropped, once every request was one or the other."""
    until = time.monotonic() + PATIENCE
    while True:
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
            found = re.findall(r'^athena_recordings_total\{result="(\w+)"\} (\d+)', answer.read().decode(), re.MULTILINE)
        numbers = {"kept": 0, "dropped": 0, **{result: int(number) for result, number in found}}
        if sum(numbers.values()) >= REQUESTS:
            return numbers
        assert time.monotonic() < until, numbers
        time.sleep(0.05)


def test_a_full_disk_or_a_locked_database_touches_no_answer(tmp_path: Path) -> None:
    """A gateway of its own whose files may not grow, as on a full disk, and then one whose database another process holds."""
    with PlainUpstream({"/v1/chat/completions": ANSWER}) as upstream:
        config = {"base_url": f"{upstream.url}/v1", "record": True, "metrics": {"needs_key": False}}
        full, locked = tmp_path / "full", tmp_path / "locked"
        for home in (full, locked):
            home.mkdir()
            Archive(home / "state" / DATABASE).close()
        small = os.path.getsize(full / "state" / DATABASE) + 32 * 1024
        with serving(full, config={**config, "state_dir": str(full / "state")}) as server:
            # Python lets the signal be, so that a write fails as it does on a full disk.
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (small, small))
            ask_often(server.url)
            numbers = counted(server.url)
            assert numbers["dropped"] > 0
            assert sum(numbers.values()) == REQUESTS
            assert server.says("recordings cannot be written")
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        with Archive(full / "state" / DATABASE) as archive:
            assert archive.count() == numbers["kept"], "what was kept can be read"

        with closing(sqlite3.connect(locked / "state" / DATABASE, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with serving(locked, config={**config, "state_dir": str(locked / "state")}) as server:
                ask_often(server.url)
                assert counted(server.url) == {"kept": 0, "dropped": REQUESTS}
                assert server.says("recordings cannot be written")


# -- requests that nobody serves ---------------------------------------------------------------------------------------------

EMBEDDING = Reply({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"})


def send(url: str, path: str, body: bytes | None, **headers: str) -> int:
    """The status of the answer."""
    sent = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, body, sent), timeout=PATIENCE) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_what_is_refused_or_passed_through_is_recorded_too(tmp_path: Path, mode: str) -> None:
    from athena.shells.config import hash_key

    key, state = "sk-0123456789abcdef", tmp_path / "state"
    with PlainUpstream({"/v1/embeddings": EMBEDDING, "/v1/chat/completions": ANSWER}) as upstream:
        config = {
            "upstreams": {"up": {"base_url": f"{upstream.url}/v1", "api_key": "sk-upstream-778899"}},
            "models": [{"match": "m", "use": "up"}],
            "keys": [{"name": "ci", "hash": hash_key(key)}],
            "limits": {"body_bytes": 5000},
            "state_dir": str(state),
            "record": {"mode": mode},
        }
        with running_gateway(config, tmp_path) as gateway:
            mine = {"authorization": f"Bearer {key}"}
            hello = [{"role": "user", "content": "hi"}]
            asked: list[tuple[str, bytes | None, dict[str, str], int, str, str]] = [
                ("/v1/chat/completions", b"{}", {}, 401, "refused", "invalid_api_key"),
                ("/v1/chat/completions", b'{"model": 3', mine, 400, "refused", "invalid_json"),
                ("/v1/chat/completions", json.dumps({"model": "no", "messages": hello}).encode(), mine, 404,
                 "refused", "model_not_found"),
                ("/v1/messages", b"x" * 6000, mine, 413, "refused", "request_too_large"),
                ("/v1/nowhere", b"{}", mine, 404, "refused", "unknown_path"),
                ("/v1/models", None, mine, 200, "passed", ""),
                ("/v1/messages/count_tokens", json.dumps({"model": "m", "messages": hello}).encode(), mine, 200, "passed", ""),
                ("/v1/embeddings", json.dumps({"model": "m", "input": f"text and {key}"}).encode(), mine, 200, "passed", ""),
            ]  # fmt: skip
            for path, body, headers, status, _, _ in asked:
                assert send(gateway.url, path, body, **headers) == status, path
            assert send(gateway.url, "/health", None) == 200
            asker = Asker(gateway, inspector_token(state))
            rows = asker.wait_for_rows(len(asked))
            assert len(rows) == len(asked), "questions about the gateway itself are no exchanges"
            for row, (path, body, _, status, kind, error) in zip(reversed(rows), asked, strict=True):
                assert (row["path"], row["status"], row["kind"], row["error"]) == (path, status, kind, error)
                view = msgspec.convert(asker.json(f"/exchanges/{row['id']}"), View)
                assert [write.status for write in view.writes[:1]] == [status]
                was_read = body if error not in ("request_too_large", "invalid_api_key", "unknown_path") else b""
                assert view.requests.body == (was_read or b"").replace(key.encode(), b"***").decode()
                assert ("refused before" in view.notes[-1]) == (kind == "refused")
                text = asker.ask(f"/exchanges/{row['id']}/export")[1]
                (clean,) = file.decode(text)
                assert (clean.header.kind, clean.header.redacted) == (kind, True)
                assert b"text and" not in text
                assert asker.ask(f"/exchanges/{row['id']}/replay", "POST", {"format": "off"})[0] == 422
            last = asker.json(f"/exchanges/{rows[0]['id']}")
            assert last["requests"]["upstream"][0]["url"] == f"{upstream.url}/v1/embeddings"
            came, left = ("".join(item["text"] for item in last[lane]) for lane in ("reads", "writes"))
            assert left == came != ""
            assert len(asker.json("/exchanges?kind=refused")["rows"]) == 5
            check_refused(tmp_path, gateway, [row["id"] for row in rows], disk=mode == "disk")


def check_refused(tmp_path: Path, gateway: GatewayThread, names: list[str], *, disk: bool) -> None:
    """The same at the command line."""
    where = ("--config", str(tmp_path / "athena.yml"), *(() if disk else ("--url", gateway.url)))
    listed = [json.loads(line) for line in run("record", "list", *where, "--json").output.splitlines()]
    assert {row["kind"] for row in listed} == {"refused", "passed"}
    assert names[0] in run("record", "list", *where).output
    shown = run("record", "show", names[-1], *where, "--width", "140").output
    assert "as a bearer token" in " ".join(shown.split())
    file_name = tmp_path / f"refused{disk}.athena"
    run("record", "export", names[-1], *where, "-o", str(file_name), "--keep-text")
    assert run("replay", str(file_name)).return_value == 0


def test_strangers_do_not_push_out_what_others_went_through() -> None:
    ring = Ring(most=4, most_bytes=1 << 20)
    for number, tap in enumerate(made_taps(12)):
        tap.kind = "served" if number < 3 else "refused"
        ring.add(tap)
    assert [row.id for row in ring.rows(Filter(), 10)[0]] == ["req_11", "req_2", "req_1", "req_0"]

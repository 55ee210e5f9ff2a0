"""Recordings in one SQLite database: rows, and blobs that are kept once whatever number of exchanges holds them.

Every method blocks, so it is called in a thread of its own; a connection belongs to the thread that made it. Changes of the
database's form are numbered files under `migrations`; `PRAGMA user_version` says which of them it has.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from athena.errors import AthenaError
from athena.recording import file
from athena.recording.deltas import delta, restored
from athena.recording.filters import Filter
from athena.recording.lines import Recording
from athena.recording.parted import OrderedStreams, Parted, Streams
from athena.recording.show import row_of
from athena.recording.view import ExchangeRow
from athena.shells.migrations import migrate_sqlite, scripts
from athena.shells.own_files import check_directory, check_own, open_own, own_directory

_LEVEL = 1
_SMALL = 8 * 1024
_LARGE = 16 * 1024
"""Bytes up to which a small window is enough, and from which on the dictionary is of no use."""
_CACHED = 64
_CACHED_BYTES = 48 * 1024 * 1024
"""Bodies that are remembered so that the next request of their session is told by them."""
_DAY = 86400.0
_TRIMMED = 64
_LONGEST_CHAIN = 20_000
_STEPS = 2
"""How streams are kept since there are steps; before, nothing said how."""
_DICTIONARY = (
    b'{"line":"recording","id":"req_","athena":"","at":17,"clock":1,"program":"claude-cli/2.1","session":"","agent":""}\n'
    b'{"line":"request","body":{},"path":"/v1/messages","dialect":"anthropic_messages","headers":{"user-agent":"","accept":"*/*"'
    b',"content-type":"application/json","anthropic-version":"2023-06-01","content-length":"'
    b'{"line":"attempt","t":0.0,"target":0,"path":"/v1/chat/completions","headers":{"content-type":"application/json","accept":'
    b'"text/event-stream"},"body":{"text":""},"created":17,"input_tokens":1}\n{"line":"head","t":0.1,"status":200,"headers":{'
    b'{"line":"client_head","t":0.1,"status":200,"headers":{"content-type":"text/event-stream; charset=utf-8","cache-control":'
    b'"no-cache","x-accel-buffering":"no","request-id":"req_","x-request-id":"req_"}}\n'
    b'{"line":"read","t":0.1,"body":{"text":"data: {\\"id\\":\\"\\",\\"object\\":\\"chat.completion.chunk\\",\\"created\\":17,'
    b'\\"model\\":\\"\\",\\"choices\\":[{\\"index\\":0,\\"delta\\":{\\"content\\":\\"\\"},\\"finish_reason\\":null}]}\\n\\n"}}\n'
    b'{"line":"write","t":0.1,"body":{"text":"event: content_block_delta\\ndata: {\\"type\\":\\"content_block_delta\\",'
    b'\\"index\\":0,\\"delta\\":{\\"type\\":\\"text_delta\\",\\"text\\":\\"\\"}}\\n\\n"}}\n{"line":"end","t":0.1}\n'
    b'{"line":"outcome","record":{"request_id":"req_","dialect":"anthropic_messages","model":"","upstream":"","upstream_dialect":'
    b'"openai_chat","upstream_model":"","stream":true,"tools":1,"calls":0,"attempts":1,"status":200,"outcome":"ok",'
    b'"input_tokens":1,"output_tokens":1,"chunks":1,"first_byte_ms":1.0,"duration_ms":1.0,"own_us_per_chunk":1.0},"details":{'
    b'{"role":"user","content":[{"type":"text","text":""}]},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_","name"'
    b':"","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_","content":""}]}'
    b'{"role":"assistant","content":null,"tool_calls":[{"id":"call_","type":"function","function":{"name":"","arguments":"{'
    b'{"id":"","at":17,"state":"done","verdict":"ok","program":"","session":"","agent":"","parent":"","key":"","dialect":"","path"'
)
"""What most recordings say, so that small blobs pack well. It is part of the form: another one needs a migration."""


class Archive:
    """The database of recordings of one state directory."""

    def __init__(self, path: Path, *, timeout_s: float = 5.0) -> None:
        """Opens it, making it if it is missing. Raises OSError for a place that is not ours, sqlite3.Error for a bad file."""
        self.path = path
        own_directory(path.parent)
        check_directory(path.parent)
        if os.path.lexists(path):
            check_own(path)  # without opening it: closing it again would end the locks of those who use it in this process
        else:
            os.close(open_own(path, os.O_RDWR | os.O_CREAT))
        self._database = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
        self._bodies: OrderedDict[tuple[str, ...], list[tuple[int, int, bytes]]] = OrderedDict()
        """By session and side: number, length of its chain, and the body."""
        self._cached = 0
        self._settings: dict[bytes, int] = {}
        """Settings by their content: most exchanges have the same."""
        self._used: dict[int, int] = {}
        """How many more hold a blob than its row says, until the transaction ends."""
        self._version = 0
        """Changes whenever another connection has written."""
        try:
            self._database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._migrate()
        except sqlite3.Error:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _migrate(self) -> None:
        steps = scripts(__package__)
        if migrate_sqlite(self._database, steps) > len(steps):
            raise AthenaError(
                f"{self.path} was made by a newer version of Athena; move it away, or use that version", code="recordings"
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            version = self._database.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version:
                # Another process wrote: what is remembered of bodies may name rows that are not there now.
                self._version = version
                self._forget_bodies()
            yield
            self._count_uses()
        except BaseException:
            self._forget_bodies()
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    # -- writing -------------------------------------------------------------------------------------------------------------

    def add(self, recordings: Iterable[Recording]) -> list[ExchangeRow]:
        """Keep them, all or none. Returns their rows, in which names are unique."""
        return self.add_parted([Parted.of(recording) for recording in recordings])

    def add_parted(self, recordings: Iterable[Parted]) -> list[ExchangeRow]:
        """The same for recordings in parts."""
        with self._transaction():
            return [self._add(recording) for recording in recordings]

    def _add(self, recording: Parted) -> ExchangeRow:
        row = row_of(recording.bare, size=recording.size)
        whose = (row.session or row.program, row.agent, row.key, row.dialect)
        places = (("client", *whose), ("upstream", *whose, row.upstream, row.upstream_model))
        blobs = [self._settings_blob(recording.settings)]
        blobs += [self._blob(places[min(number, 1)], body) for number, body in enumerate(recording.bodies)]
        values = (
            row.at,
            row.session,
            int(row.verdict != "ok" and row.kind != "refused"),
            _packed(msgspec.json.encode(row)),
            _packed(file.encode(recording.bare)),
            _packed_streams(recording.streams),
            msgspec.json.encode(blobs).decode(),
        )
        if not self._insert(row.id, values):
            # Clients may give two requests one id.
            number = self._database.execute("SELECT coalesce(max(number), 0) + 1 FROM exchanges").fetchone()[0]
            row = msgspec.structs.replace(row, id=f"{row.id}.{number}")
            self._insert(row.id, (*values[:3], _packed(msgspec.json.encode(row)), *values[4:]))
        return row

    def _insert(self, name: str, values: tuple[object, ...]) -> bool:
        """Insert a row; False where the name is taken."""
        done = self._database.execute(
            "INSERT OR IGNORE INTO exchanges (name, at, session, weight, row, lines, streams, parts)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (name, *values),
        )
        return bool(done.rowcount)

    def _settings_blob(self, settings: bytes) -> int:
        number = self._settings.get(settings)
        if number is None:
            number = self._kept(None, settings, settings)
            if len(self._settings) >= _CACHED:
                self._settings.clear()
            self._settings[settings] = number
        self._use(number)
        return number

    def _blob(self, place: tuple[str, ...], body: bytes) -> int:
        number = self._same(place, body)
        if number is None:
            base, length, told = self._shortest(place, body)
            number = self._kept(base, told, body)
            self._remember(place, number, length, body)
        self._use(number)
        return number

    def _same(self, place: tuple[str, ...], body: bytes) -> int | None:
        """The blob of an equal body that is remembered: a client asked twice."""
        return next((number for number, _, earlier in self._bodies.get(place, []) if earlier == body), None)

    def _kept(self, base: int | None, told: bytes, body: bytes) -> int:
        """The blob that tells the body so, a new one unless there is one. What follows from a blob is named by that and by the
        difference: the long body is not hashed anew with every turn."""
        hasher = hashlib.sha256(b"" if base is None else b"%d:" % base)
        hasher.update(told if base is not None else body)
        digest = hasher.digest()[:16]
        known = self._database.execute("SELECT number FROM blobs WHERE digest = ?", (digest,)).fetchone()
        if known is not None:
            return int(known[0])
        number = self._database.execute(
            "INSERT INTO blobs (digest, base, uses, data) VALUES (?, ?, 0, ?)", (digest, base, _packed(told))
        ).lastrowid
        assert number is not None
        if base is not None:
            self._use(base)
        return number

    def _use(self, number: int) -> None:
        self._used[number] = self._used.get(number, 0) + 1

    def _count_uses(self) -> None:
        if self._used:
            counts = [(count, number) for number, count in self._used.items()]
            self._database.executemany("UPDATE blobs SET uses = uses + ? WHERE number = ?", counts)
            self._used.clear()

    def _shortest(self, place: tuple[str, ...], body: bytes) -> tuple[int | None, int, bytes]:
        """The blob to tell it by, how many follow from each other then, and what is to be stored."""
        best: tuple[int | None, int, bytes] | None = None
        for number, length, earlier in reversed(self._bodies.get(place, [])):
            told = delta(earlier, body) if length < _LONGEST_CHAIN else None
            if told is not None and (best is None or len(told) < len(best[2])):
                best = number, length + 1, told
                if len(told) < len(body) // 20:
                    break
        return best if best is not None else (None, 0, body)

    def _forget_bodies(self) -> None:
        self._bodies.clear()
        self._settings.clear()
        self._used.clear()
        self._cached = 0

    def _remember(self, place: tuple[str, ...], number: int, length: int, body: bytes) -> None:
        kept = self._bodies.setdefault(place, [])
        kept.append((number, length, body))
        self._cached += len(body)
        self._bodies.move_to_end(place)
        # The one before the last is kept as well: a client may ask twice, or step back.
        while len(kept) > 2:
            self._cached -= len(kept.pop(0)[2])
        while self._bodies and (len(self._bodies) > _CACHED or self._cached > _CACHED_BYTES):
            _, oldest = self._bodies.popitem(last=False)
            self._cached -= sum(len(each) for _, _, each in oldest)

    def delete(self, names: Sequence[str]) -> int:
        """Forget these exchanges, and whatever no other one holds. Returns how many there were."""
        with self._transaction():
            return sum(self._delete(name) for name in names)

    def _delete(self, name: str) -> int:
        found = self._database.execute("SELECT number, parts FROM exchanges WHERE name = ?", (name,)).fetchone()
        if found is None:
            return 0
        number, parts = found
        self._database.execute("DELETE FROM exchanges WHERE number = ?", (number,))
        for blob in _numbers(parts):
            self._let_go(blob)
        return 1

    def _let_go(self, blob: int | None) -> None:
        while blob is not None:
            uses, base = self._database.execute("SELECT uses, base FROM blobs WHERE number = ?", (blob,)).fetchone()
            if uses > 1:
                self._database.execute("UPDATE blobs SET uses = uses - 1 WHERE number = ?", (blob,))
                return
            self._database.execute("DELETE FROM blobs WHERE number = ?", (blob,))
            self._forget_bodies()
            blob = base

    def trim(self, *, max_bytes: int, max_age_days: float, now: float) -> list[str]:
        """Forget what is too old or too much. What went well goes first: after half of the time, and before errors and
        repairs where there is too much. Returns the names of what went."""
        old = self._database.execute(
            "SELECT name FROM exchanges WHERE at < ? OR (weight = 0 AND at < ?) LIMIT 10000",
            (now - max_age_days * _DAY, now - max_age_days * _DAY / 2),
        ).fetchall()
        gone = [name for (name,) in old]
        if gone:
            self.delete(gone)
        while self.bytes_used > max_bytes:
            rows = self._database.execute("SELECT name FROM exchanges ORDER BY weight, at LIMIT ?", (_TRIMMED,)).fetchall()
            if not rows:
                break
            names = [name for (name,) in rows]
            self.delete(names)
            gone += names
        if gone:
            self._database.execute("PRAGMA incremental_vacuum").fetchall()
        return gone

    @property
    def bytes_used(self) -> int:
        """Bytes of the database that hold something."""
        one = self._database.execute
        pages, free = one("PRAGMA page_count").fetchone()[0], one("PRAGMA freelist_count").fetchone()[0]
        return int((pages - free) * one("PRAGMA page_size").fetchone()[0])

    # -- reading -------------------------------------------------------------------------------------------------------------

    def rows(self, wanted: Filter, limit: int = 100, cursor: float | None = None) -> tuple[list[ExchangeRow], float | None]:
        """The newest that are meant, and the cursor of the next page when there may be more."""
        conditions, values = ["1"], []  # type: list[str], list[object]
        if wanted.session:
            conditions.append("session = ?")
            values.append(wanted.session)
        if wanted.since:
            conditions.append("at >= ?")
            values.append(wanted.since)
        if wanted.until:
            conditions.append("at <= ?")
            values.append(wanted.until)
        if cursor is not None:
            conditions.append("at < ?")
            values.append(cursor)
        found: list[ExchangeRow] = []
        query = f"SELECT row FROM exchanges WHERE {' AND '.join(conditions)} ORDER BY at DESC, number DESC"
        for (packed,) in self._database.execute(query, values):
            row = _row(packed)
            if wanted.holds(row):
                if len(found) == limit:
                    return found, found[-1].at
                found.append(row)
        return found, None

    def load(self, name: str) -> Recording | None:
        """The exchange of that name."""
        found = self._database.execute("SELECT lines, streams, parts FROM exchanges WHERE name = ?", (name,)).fetchone()
        if found is None:
            return None
        packed, streams, parts = found
        settings, *bodies = map(self._body, _numbers(parts))
        (bare,) = file.decode(_unpacked(packed))
        if streams is None:
            # Made before streams were kept apart: reads and writes stand among the lines.
            read = Parted.of(bare).streams
            bare = msgspec.structs.replace(bare, happened=Parted.of(bare).bare.happened)
        else:
            read = _unpacked_streams(streams)
        return Parted(bare=bare, settings=settings, bodies=bodies, streams=read).whole()

    def before(self, row: ExchangeRow) -> tuple[str, bytes] | None:
        """The request before this one in its session, by the same agent."""
        if not row.session:
            return None
        rows = self._database.execute(
            "SELECT parts, row FROM exchanges WHERE session = ? AND at < ? ORDER BY at DESC LIMIT 20", (row.session, row.at)
        )
        for parts, packed in rows.fetchall():
            earlier = _row(packed)
            if (earlier.agent, earlier.dialect) == (row.agent, row.dialect):
                return earlier.id, self._body(_numbers(parts)[1])
        return None

    def count(self) -> int:
        """How many exchanges are kept."""
        return int(self._database.execute("SELECT count(*) FROM exchanges").fetchone()[0])

    def _body(self, blob: int) -> bytes:
        told: list[bytes] = []
        at: int | None = blob
        while at is not None:
            at, data = self._database.execute("SELECT base, data FROM blobs WHERE number = ?", (at,)).fetchone()
            told.append(_unpacked(data))
        body = told.pop()
        while told:
            body = restored(body, told.pop())
        return body


_read_row = msgspec.json.Decoder(ExchangeRow).decode


def _row(packed: bytes) -> ExchangeRow:
    return _read_row(_unpacked(packed))


def _numbers(parts: str) -> list[int]:
    return msgspec.json.decode(parts, type=list[int])


def _packed(data: bytes) -> bytes:
    """For texts that are short and much like all others."""
    small = len(data) < _SMALL
    packer = zlib.compressobj(_LEVEL, wbits=13 if small else 15, memLevel=6 if small else 8, zdict=_DICTIONARY)
    return packer.compress(data) + packer.flush()


def _unpacked(data: bytes) -> bytes:
    return zlib.decompressobj(zdict=_DICTIONARY).decompress(data)


def _packed_streams(streams: Streams) -> bytes:
    """Moments are numbers without a pattern: they take long to pack and do not become shorter."""
    rest = msgspec.msgpack.encode(msgspec.structs.replace(streams, times=[]))
    packed = zlib.compress(rest, _LEVEL) if len(rest) > _LARGE else _packed(rest)
    return msgspec.msgpack.encode((packed, streams.times, _STEPS))


_read_streams = msgspec.msgpack.Decoder(Streams).decode


_read_ordered = msgspec.msgpack.Decoder(OrderedStreams).decode


def _unpacked_streams(data: bytes) -> Streams:
    packed, times, *form = msgspec.msgpack.decode(data)
    if form:
        return msgspec.structs.replace(_read_streams(_unpacked(packed)), times=times)
    old = _read_ordered(_unpacked(packed))
    return msgspec.structs.replace(old, times=times).steps()

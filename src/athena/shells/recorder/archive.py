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
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from athena.errors import AthenaError
from athena.recording import file
from athena.recording.deltas import delta, restored
from athena.recording.filters import Filter
from athena.recording.lines import Attempt, Happened, Payload, Recording, Settings
from athena.recording.show import row_of
from athena.recording.view import Row
from athena.shells.own_files import check_directory, open_own, own_directory

_LEVEL = 1
_CACHED = 64
_CACHED_BYTES = 48 * 1024 * 1024
"""Bodies that are remembered so that the next request of their session is told by them."""
_DAY = 86400.0
_TRIMMED = 64
_LONGEST_CHAIN = 20_000
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
        os.close(open_own(path, os.O_RDWR | os.O_CREAT))
        self._database = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
        self._bodies: OrderedDict[tuple[str, ...], list[tuple[int, int, bytes]]] = OrderedDict()
        """By session and side: number, length of its chain, and the body."""
        self._cached = 0
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
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        steps = sorted(
            (entry for entry in resources.files(__package__).joinpath("migrations").iterdir() if entry.name.endswith(".sql")),
            key=lambda entry: entry.name,
        )
        if version > len(steps):
            raise AthenaError(
                f"{self.path} was made by a newer version of Athena; move it away, or use that version", code="recordings"
            )
        for number, entry in enumerate(steps, 1):
            if number > version:
                script = entry.read_text(encoding="utf-8")
                self._database.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # What was remembered of bodies may name rows that are not there now.
            self._bodies.clear()
            self._cached = 0
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    # -- writing -------------------------------------------------------------------------------------------------------------

    def add(self, recordings: Iterable[Recording]) -> list[Row]:
        """Keep them, all or none. Returns their rows, in which names are unique."""
        with self._transaction():
            return [self._add(recording) for recording in recordings]

    def _add(self, recording: Recording) -> Row:
        bare, bodies = _parted(recording)
        row = row_of(recording, size=sum(map(len, bodies)) + len(recording.client_bytes) + len(recording.upstream_bytes))
        row = msgspec.structs.replace(row, id=self._free_name(row.id))
        weight = int(row.verdict != "ok")
        at = self._database.execute(
            "INSERT INTO exchanges (name, at, session, weight, row, lines) VALUES (?, ?, ?, ?, ?, ?)",
            (row.id, row.at, row.session, weight, _packed(msgspec.json.encode(row)), _packed(file.encode(bare))),
        ).lastrowid
        whose = (row.session or row.program, row.agent, row.key, row.dialect)
        places = (("settings",), ("client", *whose), ("upstream", *whose, row.upstream, row.upstream_model))
        for position, body in enumerate(bodies):
            place = places[min(position, len(places) - 1)]
            self._database.execute("INSERT INTO parts VALUES (?, ?, ?)", (at, position, self._blob(place, body)))
        return row

    def _free_name(self, name: str) -> str:
        """Clients may give two requests one id."""
        taken = self._database.execute("SELECT 1 FROM exchanges WHERE name = ?", (name,)).fetchone()
        if taken is None:
            return name
        number = self._database.execute("SELECT coalesce(max(number), 0) + 1 FROM exchanges").fetchone()[0]
        return f"{name}.{number}"

    def _blob(self, place: tuple[str, ...], body: bytes) -> int:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        known = self._database.execute("SELECT number FROM blobs WHERE digest = ?", (digest,)).fetchone()
        if known is not None:
            self._database.execute("UPDATE blobs SET uses = uses + 1 WHERE number = ?", known)
            return int(known[0])
        base, length, data = self._shortest(place, body)
        number = self._database.execute(
            "INSERT INTO blobs (digest, base, uses, data) VALUES (?, ?, 1, ?)", (digest, base, data)
        ).lastrowid
        assert number is not None
        if base is not None:
            self._database.execute("UPDATE blobs SET uses = uses + 1 WHERE number = ?", (base,))
        self._remember(place, number, length, body)
        return number

    def _shortest(self, place: tuple[str, ...], body: bytes) -> tuple[int | None, int, bytes]:
        """The blob to tell it by, how many follow from each other then, and what is to be stored."""
        best: tuple[int | None, int, bytes] | None = None
        for number, length, earlier in reversed(self._bodies.get(place, [])):
            told = delta(earlier, body) if length < _LONGEST_CHAIN else None
            if told is not None and (best is None or len(told) < len(best[2])):
                best = number, length + 1, told
                if len(told) < len(body) // 20:
                    break
        if best is not None:
            return best[0], best[1], _packed(best[2])
        return None, 0, _packed(body)

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
        found = self._database.execute("SELECT number FROM exchanges WHERE name = ?", (name,)).fetchone()
        if found is None:
            return 0
        blobs = [each[0] for each in self._database.execute("SELECT blob FROM parts WHERE exchange = ?", found)]
        self._database.execute("DELETE FROM parts WHERE exchange = ?", found)
        self._database.execute("DELETE FROM exchanges WHERE number = ?", found)
        for blob in blobs:
            self._let_go(blob)
        return 1

    def _let_go(self, blob: int | None) -> None:
        while blob is not None:
            uses, base = self._database.execute("SELECT uses, base FROM blobs WHERE number = ?", (blob,)).fetchone()
            if uses > 1:
                self._database.execute("UPDATE blobs SET uses = uses - 1 WHERE number = ?", (blob,))
                return
            self._database.execute("DELETE FROM blobs WHERE number = ?", (blob,))
            self._bodies.clear()
            self._cached = 0
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

    def rows(self, wanted: Filter, limit: int = 100, cursor: float | None = None) -> tuple[list[Row], float | None]:
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
        found: list[Row] = []
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
        found = self._database.execute("SELECT number, lines FROM exchanges WHERE name = ?", (name,)).fetchone()
        if found is None:
            return None
        number, packed = found
        blobs = self._database.execute("SELECT blob FROM parts WHERE exchange = ? ORDER BY position", (number,))
        return _whole(file.decode(_unpacked(packed))[0], [self._body(blob) for (blob,) in blobs.fetchall()])

    def before(self, row: Row) -> tuple[str, bytes] | None:
        """The request before this one in its session, by the same agent."""
        if not row.session:
            return None
        rows = self._database.execute(
            "SELECT number, row FROM exchanges WHERE session = ? AND at < ? ORDER BY at DESC LIMIT 20", (row.session, row.at)
        )
        for number, packed in rows.fetchall():
            earlier = _row(packed)
            if (earlier.agent, earlier.dialect) == (row.agent, row.dialect):
                part = self._database.execute(
                    "SELECT blob FROM parts WHERE exchange = ? AND position = 1", (number,)
                ).fetchone()
                return earlier.id, self._body(part[0])
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


def _row(packed: bytes) -> Row:
    return msgspec.json.decode(_unpacked(packed), type=Row)


def _packed(data: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zdict=_DICTIONARY)
    return packer.compress(data) + packer.flush()


def _unpacked(data: bytes) -> bytes:
    return zlib.decompressobj(zdict=_DICTIONARY).decompress(data)


def _parted(recording: Recording) -> tuple[Recording, list[bytes]]:
    """The recording without its settings and the bodies of requests, and those."""
    bodies = [msgspec.json.encode(recording.settings), recording.request.body.data]
    happened: list[Happened] = []
    for line in recording.happened:
        if isinstance(line, Attempt):
            bodies.append(line.body.data)
            line = msgspec.structs.replace(line, body=Payload())
        happened.append(line)
    bare = msgspec.structs.replace(
        recording,
        settings=Settings(),
        request=msgspec.structs.replace(recording.request, body=Payload()),
        happened=tuple(happened),
    )
    return bare, bodies


def _whole(bare: Recording, bodies: list[bytes]) -> Recording:
    settings, request, *attempts = bodies
    rest = iter(attempts)
    return msgspec.structs.replace(
        bare,
        settings=msgspec.json.decode(settings, type=Settings),
        request=msgspec.structs.replace(bare.request, body=Payload.of(request)),
        happened=tuple(
            msgspec.structs.replace(line, body=Payload.of(next(rest))) if isinstance(line, Attempt) else line
            for line in bare.happened
        ),
    )

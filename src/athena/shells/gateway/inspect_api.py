"""`/inspect/api`: recordings as JSON, for the inspector's page and for scripts. `docs/recordings.md` lists the requests.

Whoever asks shows the inspector's token or a gateway key. Pages of other sites are refused: a browser names them in `Origin`
and `Sec-Fetch-Site`.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from athena.errors import AthenaError
from athena.formats import ALIASES, format_names
from athena.recording import file
from athena.recording.cases import case_of
from athena.recording.filters import MOST_ROWS, Filter, Position, health_of, sessions_of
from athena.recording.lines import Recording
from athena.recording.redact import redacted
from athena.recording.replay import Changes
from athena.recording.show import live_view, replayed_view, view_of
from athena.serving.endpoints import credential
from athena.serving.learning import Lesson
from athena.serving.route_health import RouteReport
from athena.shells.gateway.client import Client, Headers
from athena.shells.gateway.inspect_stored import list_talks, told_talk
from athena.shells.recorder.recorder import Recorder
from athena.shells.store.store import Store
from athena.typed_values import reader

PREFIX = "/inspect/api"
_LARGEST_BODY = 64 * 1024
_ALIVE_S = 15.0
_MOST_WAITING = 2000
"""Messages that a slow page may have waiting; then it is told to ask again."""
_HEALTH_S = 3600.0
_FEW_BYTES = 4096
_WORDS = ("q", "id", "name", "session", "agent", "response", "program", "model", "upstream", "outcome", "verdict", "kind")


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class InspectApi:
    """Answers requests below `/inspect/api`."""

    def __init__(
        self,
        recorder: Recorder,
        token: str,
        is_key: Callable[[str], bool],
        up: Callable[[], dict[str, bool]],
        lessons: Callable[[], list[Lesson]],
        routes: Callable[[], list[RouteReport]],
        models: Callable[[], Awaitable[list[str]]],
        store: Callable[[], Store | None] = lambda: None,
    ) -> None:
        """`is_key` knows the gateway's keys; `up` says which upstreams are up, `lessons` what was learnt from refusals,
        `routes` what the answers of each model were worth lately, `models` which can be asked for; `store` keeps responses, if
        anything does."""
        self.recorder = recorder
        self.token = token
        """Opens the inspector; `athena serve` prints it."""
        self._is_key = is_key
        self._up = up
        self._lessons = lessons
        self._routes = routes
        self._models = models
        self._store = store
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every live answer."""
        self._closing.set()

    async def serve(self, client: Client) -> None:
        try:
            check_origin(client.headers)
            self._admit(client.headers, client.query)
            await self._answer(client)
        except _Refused as refused:
            error = {"code": refused.code, "message": refused.message}
            _reply(client, refused.status, msgspec.json.encode({"error": error}))
        except AthenaError as error:
            body = {"error": {"code": error.code, "message": error.message}}
            _reply(client, 503 if error.code == "recordings" else 422, msgspec.json.encode(body))

    def _admit(self, headers: Mapping[str, str], query: str) -> None:
        if not self.may_enter(headers, query):
            raise _Refused(
                401, "inspector_token", "the inspector asks for its token or a gateway key; `athena serve` prints it"
            )

    def may_enter(self, headers: Mapping[str, str], query: str) -> bool:
        """Does whoever asks show the token, or a gateway key?"""
        shown = _shown(headers, query)
        return bool(shown) and (self._is_operator(shown) or self._is_key(shown))

    def _is_operator(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode(), self.token.encode())

    async def _answer(self, client: Client) -> None:
        parts = [unquote(part) for part in client.path.removeprefix(PREFIX).split("/") if part]
        values = _values(client.query)
        match client.method, parts:
            case "GET" | "HEAD", ["exchanges"]:
                await self._list(client, values)
            case "GET" | "HEAD", ["exchanges", name]:
                _send(client, await self._view(name))
            case "GET" | "HEAD", ["exchanges", name, "export"]:
                await self._export(client, name, keep_text=values.get("keep_text", "") in ("1", "true"))
            case "GET" | "HEAD", ["exchanges", name, "case"]:
                wanted = {field: value for field, value in values.items() if field in ("client", "format", "repair", "policy")}
                changes = _changes(msgspec.json.encode(wanted))
                recording = await self._load(name)
                text = await asyncio.to_thread(partial(case_of, recording, changes, redact_with=secrets.token_bytes(32)))
                _reply(client, 200, text.encode(), "application/toml; charset=utf-8", _saved_as(f"{name}.toml"))
            case "POST", ["exchanges", name, "replay"]:
                recording, changes = await self._load(name), _changes(await _body(client))
                _send(client, await asyncio.to_thread(replayed_view, recording, changes))
            case "DELETE", ["exchanges", name]:
                if not await self.recorder.remove(name):
                    raise _Refused(404, "no_such_exchange", f"no exchange {name}")
                _reply(client, 204, b"")
            case "GET" | "HEAD", ["sessions"]:
                rows = await self.recorder.rows(_filter(values), MOST_ROWS * 20)
                _send(client, {"sessions": sessions_of([*self.recorder.live_rows(), *rows])})
            case "GET" | "HEAD", ["conversations", *name] if len(name) < 2:
                if not self._is_operator(_shown(client.headers, client.query)):
                    raise _Refused(
                        403,
                        "inspector_token",
                        "conversations belong to the keys that made them: only the inspector's token opens all",
                    )
                _send(client, await self._talks(*name))
            case "GET" | "HEAD", ["models"]:
                _send(client, {"models": await self._models()})
            case "GET" | "HEAD", ["health"]:
                await self._health(client, values)
            case "GET", ["live"]:
                await self._live(client)
            case _:
                raise _Refused(404, "unknown_path", "no such path; docs/recordings.md lists them")

    # -- answers -------------------------------------------------------------------------------------------------------------

    async def _list(self, client: Client, values: Mapping[str, str]) -> None:
        wanted = _filter(values)
        limit = max(1, min(int(_number(values, "limit") or 100), MOST_ROWS))
        after = _position(values)
        rows, following = await self.recorder.page(wanted, limit, after)
        body = {
            "rows": rows,
            # Once for all pages: to count what a filter means may take a look at every exchange.
            "total": await self.recorder.count(wanted) if after is None else None,
            "next": following.cursor if following is not None else None,
            "dropped": self.recorder.dropped,
            "mode": self.recorder.mode,
        }
        _send(client, body)

    async def _load(self, name: str) -> Recording:
        recording = await self.recorder.load(name)
        if recording is None:
            if self.recorder.is_live(name):
                raise _Refused(409, "in_flight", f"{name} is still in flight")
            raise _Refused(404, "no_such_exchange", f"no exchange {name}")
        return recording

    async def _view(self, name: str) -> Any:
        live = await self.recorder.load_live(name)
        if live is not None:
            return await asyncio.to_thread(live_view, live, asyncio.get_running_loop().time())
        recording = await self._load(name)
        row = next(iter(await self.recorder.rows(Filter(name=name), 1)), None)
        before = await self.recorder.before(row) if row is not None else None
        view = await asyncio.to_thread(view_of, recording, before)
        return msgspec.structs.replace(view, row=row) if row is not None else view

    async def _export(self, client: Client, name: str, *, keep_text: bool) -> None:
        recording = await self._load(name)
        if not keep_text:
            recording = await asyncio.to_thread(redacted, recording, secrets.token_bytes(32))
        _reply(client, 200, file.encode(recording), "application/x-ndjson; charset=utf-8", _saved_as(f"{name}.athena"))

    async def _talks(self, name: str = "") -> Any:
        store = self._store()
        if not name:
            return {"talks": await list_talks(store) if store is not None else [], "keeps": store is not None}
        rows = await self.recorder.rows(Filter(), MOST_ROWS * 20)
        exchanges = {row.response: row.id for row in rows if row.response}
        found = await told_talk(store, name, exchanges) if store is not None else None
        if found is None:
            raise _Refused(404, "no_such_conversation", f"no conversation {name}")
        return found

    async def _health(self, client: Client, values: Mapping[str, str]) -> None:
        now = time.time()
        asked = _number(values, "since")
        earliest = asked or now - _HEALTH_S
        rows = await self.recorder.rows(Filter(since=earliest), MOST_ROWS * 20)
        # Before the recorder began there is only what an earlier one left on disk.
        since = asked or max(earliest, min([self.recorder.began, *(row.at for row in rows)]))
        up = self._up()
        body = {
            "upstreams": health_of(rows, up, now, since),
            "up": up,
            "since": since,
            "lessons": self._lessons(),
            "routes": self._routes(),
        }
        _send(client, body)

    async def _live(self, client: Client) -> None:
        waiting: deque[bytes] = deque()
        news = asyncio.Event()

        def tell(kind: str, value: Any) -> None:
            if len(waiting) < _MOST_WAITING:
                waiting.append(_event(kind, value))
            elif len(waiting) == _MOST_WAITING:
                waiting.append(_event("again", {}))
            news.set()

        def left() -> None:
            gone.set()
            news.set()

        gone = asyncio.Event()
        client.on_gone = client.on_doubt = left
        client.on_drained = news.set
        forget = self.recorder.listen(tell)
        closing = asyncio.create_task(self._closing.wait())
        closing.add_done_callback(lambda _: news.set())
        try:
            client.start(200, _headers("text/event-stream; charset=utf-8"), None)
            live = self.recorder.live_rows()
            hello = {
                "in_flight": len(live),
                "kept": await self.recorder.kept(),
                "mode": self.recorder.mode,
                "dropped": self.recorder.dropped,
            }
            client.write(_event("hello", hello) + b"".join(_event("row", row) for row in live))
            while not gone.is_set() and not self._closing.is_set():
                if waiting and not client.blocked:
                    client.write(b"".join(waiting))
                    waiting.clear()
                news.clear()
                try:
                    async with asyncio.timeout(_ALIVE_S):
                        await news.wait()
                except TimeoutError:
                    if not client.blocked:
                        client.write(b": alive\n\n")
            if not gone.is_set():
                client.finish()
        finally:
            closing.cancel()
            forget()
            client.on_gone = client.on_doubt = client.on_drained = None


def is_foreign_page(headers: Mapping[str, str]) -> bool:
    """Did a page of another site send this? Browsers name it."""
    origin, host = headers.get("origin", ""), headers.get("host", "")
    foreign = bool(origin) and (origin == "null" or urlsplit(origin).netloc.lower() != host.lower())
    return foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuses pages of other sites. Raises _Refused."""
    if is_foreign_page(headers):
        raise _Refused(403, "origin_not_allowed", "the inspector answers no other site's pages")


def _event(kind: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(value))


def _headers(kind: str) -> Headers:
    return [
        (b"content-type", kind.encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]


def _saved_as(name: str) -> tuple[bytes, bytes]:
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    return b"content-disposition", f'attachment; filename="{plain}"'.encode("ascii", "replace")


def _send(client: Client, value: Any) -> None:
    _reply(client, 200, msgspec.json.encode(value))


def _reply(client: Client, status: int, body: bytes, kind: str = "application/json", *more: tuple[bytes, bytes]) -> None:
    client.start(status, [*_headers(kind), *more], len(body))
    client.finish(body if client.method != "HEAD" else b"")


def _values(query: str) -> dict[str, str]:
    try:
        found = parse_qs(query[:_FEW_BYTES], keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in found.items()}


def _shown(headers: Mapping[str, str], query: str) -> str:
    """What whoever asks shows to be let in."""
    return credential(headers, "") or _values(query).get("token", "")


def _number(values: Mapping[str, str], name: str) -> float:
    try:
        number = float(values.get(name) or 0)
    except ValueError:
        number = float("nan")
    if number != number or abs(number) == float("inf"):
        raise _Refused(400, "invalid_request", f"{name} must be a number")
    return number


def _position(values: Mapping[str, str]) -> Position | None:
    """The position after which the wanted page begins."""
    cursor = values.get("cursor")
    if not cursor:
        return None
    try:
        return Position.of(cursor)
    except ValueError:
        raise _Refused(400, "invalid_request", "cursor must be the `next` of an earlier answer") from None


def _filter(values: Mapping[str, str]) -> Filter:
    return Filter(
        **{name: values[name] for name in _WORDS if name in values},
        repaired=values.get("repaired", "") in ("1", "true"),
        since=_number(values, "since"),
        until=_number(values, "until"),
    )


async def _body(client: Client) -> bytes:
    body = b""
    while True:
        part, whole = client.take_body()
        body += part
        if len(body) > _LARGEST_BODY:
            raise _Refused(413, "request_too_large", "a replay's settings are short")
        if whole:
            return body
        await client.more_body(_LARGEST_BODY)


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    client: str = ""
    format: str = ""
    repair: str = ""
    policy: str = ""
    chunks: int | str = "recorded"


_read_wanted = msgspec.json.Decoder(_Wanted).decode


_read_changes = reader(Changes)


def _changes(body: bytes) -> Changes:
    try:
        wanted = _read_wanted(body or b"{}")
        chunks = int(wanted.chunks) if str(wanted.chunks).isdigit() else wanted.chunks
        changes = _read_changes({**msgspec.structs.asdict(wanted), "chunks": chunks})
    except msgspec.MsgspecError as error:
        raise _Refused(400, "invalid_request", str(error)) from None
    known = ("off", "auto", "standard", *ALIASES, *format_names())
    if changes.format and changes.format not in known:
        raise _Refused(400, "invalid_request", f"format: {changes.format!r} is unknown")
    return changes

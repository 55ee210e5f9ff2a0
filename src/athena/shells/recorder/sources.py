"""Where `athena record` finds exchanges: the archive on disk, and running gateways that keep them in memory."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from athena.errors import AthenaError
from athena.recording import file
from athena.recording.filters import MOST_ROWS, Filter
from athena.recording.lines import Recording
from athena.recording.view import ExchangeRow
from athena.shells.config import Config, is_loopback
from athena.shells.recorder.recorder import DATABASE, open_archive
from athena.shells.recorder.token import inspector_token
from athena.typed_values import reader

TOKEN_VARIABLE = "ATHENA_INSPECT_TOKEN"
"""The environment variable that holds the inspector's token or a key of the gateway that `--url` names."""
_PATIENCE_S = 30.0
_MESSAGE_BYTES = 10_000


class NoRecordings(AthenaError):
    """There is nothing to list: nothing was recorded on disk, and no gateway runs that keeps exchanges in memory.

    Switch recording on with `record: on`, or start a gateway on this machine.
    """

    code = "no_recordings"


class RecordingSource(Protocol):
    """Exchanges that can be listed, read and deleted."""

    def rows(self, wanted: Filter, limit: int | None = None) -> list[ExchangeRow]:
        """The newest exchanges that the filter lets through; all of them without a limit."""

    def load(self, name: str) -> Recording | None:
        """The whole recording of one exchange; None where it is gone."""

    def delete(self, names: list[str]) -> int:
        """Forget these. Returns how many there were."""

    def close(self) -> None:
        """Release what was opened to read."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class ArchiveSource:
    """The archive of a state directory."""

    def __init__(self, path: Path) -> None:
        self._open = ExitStack()
        self._archive = self._open.enter_context(open_archive(path))

    def rows(self, wanted: Filter, limit: int | None = None) -> list[ExchangeRow]:
        return self._archive.rows(wanted, self._archive.count() if limit is None else limit)[0]

    def load(self, name: str) -> Recording | None:
        return self._archive.load(name)

    def delete(self, names: list[str]) -> int:
        return self._archive.delete(names)

    def add(self, recordings: list[Recording]) -> list[ExchangeRow]:
        return self._archive.add(recordings)

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)


class _Page(msgspec.Struct, frozen=True):
    """What a gateway answers when it is asked for exchanges."""

    rows: list[ExchangeRow]
    next: str | None
    mode: str = ""


_read_page = reader(_Page)


class GatewaySource:
    """The exchanges that a running gateway keeps."""

    def __init__(self, url: str, token: str) -> None:
        self._gateway = url.rstrip("/")
        self._token = token
        self.mode = self._page({"limit": 1}).mode
        """Where the gateway keeps exchanges: `memory` or `disk`."""

    def rows(self, wanted: Filter, limit: int | None = None) -> list[ExchangeRow]:
        values = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value}
        if values.pop("repaired", False):
            values["repaired"] = 1
        found: list[ExchangeRow] = []
        while limit is None or len(found) < limit:
            values["limit"] = MOST_ROWS if limit is None else min(limit - len(found), MOST_ROWS)
            page = self._page(values)
            found += page.rows
            if page.next is None:
                break
            values["cursor"] = page.next
        return found[:limit]

    def _page(self, values: dict[str, Any]) -> _Page:
        try:
            return _read_page(json.loads(self._get(f"/exchanges?{urllib.parse.urlencode(values)}")))
        except (ValueError, msgspec.MsgspecError):
            raise NoRecordings(f"what answers at {self._gateway} is no gateway of Athena, or one of another version") from None

    def load(self, name: str) -> Recording | None:
        try:
            return file.decode(self._get(f"/exchanges/{urllib.parse.quote(name, safe='')}/export?keep_text=1"))[0]
        except _NotThere:
            return None

    def delete(self, names: list[str]) -> int:
        count = 0
        for name in names:
            try:
                self._get(f"/exchanges/{urllib.parse.quote(name, safe='')}", method="DELETE")
                count += 1
            except _NotThere:
                continue
        return count

    def close(self) -> None:
        """Nothing is kept open between requests."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _get(self, path: str, method: str = "GET") -> bytes:
        # The machine's own: no proxy stands between.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            headers = {"authorization": f"Bearer {self._token}"}
            asked = urllib.request.Request(f"{self._gateway}/inspect/api{path}", method=method, headers=headers)
            with opener.open(asked, timeout=_PATIENCE_S) as answer:
                body: Any = answer.read()
                return bytes(body)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and path.startswith("/exchanges/"):
                    raise _NotThere from None
                if error.code == 401:
                    raise NoRecordings(
                        f"the gateway at {self._gateway} asks for its inspector's token or a gateway key: pass the address "
                        f"with the token that `athena serve` prints as --url, or set {TOKEN_VARIABLE} to the token or a key"
                    ) from None
                said = _message_of(error.read(_MESSAGE_BYTES))
                raise NoRecordings(f"the gateway at {self._gateway} says {error.code}{said and ': '}{said}") from None
        except (OSError, ValueError, HTTPException) as error:  # a ValueError: this is no address
            raise NoRecordings(f"no gateway answers at {self._gateway}: {error}") from None


def _message_of(body: bytes) -> str:
    """What an error of the gateway says to people; empty where it is something else."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""
    return message if isinstance(message, str) else ""


class _NotThere(Exception):
    pass


class JoinedSources:
    """Several sources as one. An exchange that is in two of them, such as one that was exported and imported, is one."""

    def __init__(self, sources: list[RecordingSource]) -> None:
        self._sources = sources
        self._holders: dict[str, list[RecordingSource]] = {}
        """Where each exchange was found, by its name."""

    def rows(self, wanted: Filter, limit: int | None = None) -> list[ExchangeRow]:
        found = [(row, source) for source in self._sources for row in source.rows(wanted, limit)]
        found.sort(key=lambda each: each[0].at, reverse=True)
        rows: dict[tuple[str, float], ExchangeRow] = {}
        for row, source in found:
            rows.setdefault((row.id, row.at), row)
            holders = self._holders.setdefault(row.id, [])
            if source not in holders:
                holders.append(source)
        return list(rows.values())[:limit]

    def load(self, name: str) -> Recording | None:
        loaded = (source.load(name) for source in self._holders.get(name, self._sources))
        return next((recording for recording in loaded if recording is not None), None)

    def delete(self, names: list[str]) -> int:
        count = 0
        for source in self._sources:
            holders = [(name, self._holders.get(name, self._sources)) for name in names]
            count += source.delete([name for name, held in holders if held[0] is source])
            # Counted where it was found first.
            source.delete([name for name, held in holders if source in held[1:]])
        return count

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def pasted(url: str) -> tuple[str, str]:
    """The address of a gateway, and the token in it, of an address as the gateway prints that of its inspector."""
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise NoRecordings(f"no gateway answers at {url}: {error}") from None
    token = urllib.parse.parse_qs(parts.query).get("token", [""])[-1]
    path = parts.path.rstrip("/").removesuffix("/inspect")
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", "")), token


def source_of(config: Config, url: str = "", running: Iterable[str] = ()) -> RecordingSource:
    """Where the exchanges of this configuration are: the archive and the gateways of its state directory, or the gateway at
    `url` alone. `running` are the addresses of gateways that are known to run. Raises NoRecordings."""
    state = Path(config.state_dir).expanduser()
    path = state / DATABASE
    token = inspector_token(state)
    if url:
        address, shown = pasted(url)
        # This machine's own token is for gateways on it alone.
        own = token if is_loopback(urllib.parse.urlsplit(address).hostname or "") else ""
        return GatewaySource(address, shown or os.environ.get(TOKEN_VARIABLE, "").strip() or own)
    scheme = "https" if config.tls.cert else "http"
    host = f"[{config.host}]" if ":" in config.host else config.host
    sources: list[RecordingSource] = []
    problem = ""
    for address in dict.fromkeys((*running, f"{scheme}://{host}:{config.port}")):
        try:
            gateway = GatewaySource(address, token)
        except NoRecordings as error:
            problem = error.message
            continue
        # One that keeps them on disk has the archive, which is read without it.
        if gateway.mode != "disk" or not path.exists():
            sources.append(gateway)
    if path.exists():
        sources.append(ArchiveSource(path))
    if not sources:
        raise NoRecordings(
            f"nothing is recorded: there is no {path}, and {problem}. Set `record: on` in athena.yml, or start a gateway"
        )
    return JoinedSources(sources) if len(sources) > 1 else sources[0]

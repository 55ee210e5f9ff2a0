"""Where `athena record` finds exchanges: the archive on disk, else a running gateway that keeps them in memory."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from athena.errors import AthenaError
from athena.recording import file
from athena.recording.filters import MOST_ROWS, Filter
from athena.recording.lines import Recording
from athena.recording.view import ExchangeRow
from athena.shells.config import Config
from athena.shells.recorder.archive import Archive
from athena.shells.recorder.recorder import DATABASE
from athena.shells.recorder.token import inspector_token
from athena.typed_values import reader

_PATIENCE_S = 30.0


class NoRecordings(AthenaError):
    """There is nothing to list: nothing was recorded on disk, and no gateway runs that keeps exchanges in memory.

    Switch recording on with `record: on`, or start a gateway on this machine.
    """

    code = "no_recordings"


class RecordingSource(Protocol):
    """Exchanges that can be listed, read and deleted."""

    def rows(self, wanted: Filter, limit: int) -> list[ExchangeRow]:
        """The newest exchanges that the filter lets through."""

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
        self._archive = Archive(path)

    def rows(self, wanted: Filter, limit: int) -> list[ExchangeRow]:
        return self._archive.rows(wanted, limit)[0]

    def load(self, name: str) -> Recording | None:
        return self._archive.load(name)

    def delete(self, names: list[str]) -> int:
        return self._archive.delete(names)

    def add(self, recordings: list[Recording]) -> list[ExchangeRow]:
        return self._archive.add(recordings)

    def close(self) -> None:
        self._archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


_read_rows = reader(list[ExchangeRow])


class GatewaySource:
    """The exchanges that a running gateway keeps."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/") + "/inspect/api"
        self._token = token
        self._get("/exchanges?limit=1")

    def rows(self, wanted: Filter, limit: int) -> list[ExchangeRow]:
        values = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value}
        if values.pop("repaired", False):
            values["repaired"] = 1
        query = urllib.parse.urlencode({**values, "limit": min(limit, MOST_ROWS)})
        return _read_rows(json.loads(self._get(f"/exchanges?{query}"))["rows"])

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
        asked = urllib.request.Request(self._url + path, method=method, headers={"authorization": f"Bearer {self._token}"})
        # The machine's own: no proxy stands between.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(asked, timeout=_PATIENCE_S) as answer:
                body: Any = answer.read()
                return bytes(body)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and path.startswith("/exchanges/"):
                    raise _NotThere from None
                raise NoRecordings(
                    f"the gateway at {self._url} says {error.code}: {error.read(300).decode(errors='replace')}"
                ) from None
        except OSError as error:
            raise NoRecordings(f"no gateway answers at {self._url}: {error}") from None


class _NotThere(Exception):
    pass


def source_of(config: Config, url: str = "") -> RecordingSource:
    """Where the exchanges of this configuration are. Raises NoRecordings."""
    state = Path(config.state_dir).expanduser()
    path = state / DATABASE
    if not url and path.exists():
        return ArchiveSource(path)
    scheme = "https" if config.tls.cert else "http"
    host = f"[{config.host}]" if ":" in config.host else config.host
    try:
        return GatewaySource(url or f"{scheme}://{host}:{config.port}", inspector_token(state))
    except NoRecordings as error:
        if url:
            raise
        raise NoRecordings(
            f"nothing is recorded: there is no {path}, and {error.message}. Set `record: on` in athena.yml, or start a gateway"
        ) from None

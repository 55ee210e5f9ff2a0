"""What there is to choose from: servers on this machine, and the models that a server offers."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import msgspec

from athena.errors import AthenaError
from athena.shells.config import OfferedModel, read_models
from athena.shells.config.addresses import known_host
from athena.shells.setup.providers import Provider, known_providers

_KNOCK_SECONDS = 0.5
_ASK_SECONDS = 15.0
_MOST_BYTES = 16 * 1024 * 1024


class LocalOffer(msgspec.Struct, frozen=True):
    """A provider, and whether something listens where its server would, on this machine."""

    provider: Provider
    listens: bool = False


def find_local() -> tuple[LocalOffer, ...]:
    """All providers; those of this machine are knocked at, all at once, for half a second at most."""
    rows = known_providers()
    with ThreadPoolExecutor(len(rows)) as threads:
        return tuple(threads.map(lambda row: LocalOffer(row, row.is_local and _listens(row.port)), rows))


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), _KNOCK_SECONDS):
            return True
    except OSError:
        return False


def ask_models(provider: Provider, key: str, dialect: str = "") -> tuple[OfferedModel, ...]:
    """The models that a server offers to this key. Raises AthenaError with the address, what came back and what to do.

    `dialect`: what the server speaks; left out: what its address implies.
    """
    row = known_host(provider.base_url)
    dialect = dialect or (next(iter(row.profiles), "openai_chat") if row is not None else "openai_chat")
    url, headers = _models_request(provider.base_url, dialect, key)
    request = urllib.request.Request(url, headers={"accept": "application/json", "user-agent": "athena", **headers})
    try:
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS) as answer:
            data = answer.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise AthenaError(f"{url} answers {error.code}; {_REMEDIES.get(error.code, 'see its documentation')}") from None
    except (OSError, ValueError) as error:
        raise AthenaError(f"{url} cannot be reached: {_reason(error)}") from None
    try:
        models = read_models(msgspec.json.decode(data))
    except msgspec.DecodeError:
        raise AthenaError(f"{url} does not answer with JSON; is the address that of an API, with its /v1?") from None
    if not models:
        raise AthenaError(f"{url} lists no models")
    return models


def _reason(error: OSError | ValueError) -> str:
    """What went wrong, and what to look at."""
    cause = getattr(error, "reason", error)
    words = getattr(cause, "strerror", None) or str(cause)
    return f"{words}; is {'the host name right' if isinstance(cause, socket.gaierror) else 'the server running'}?"


_REMEDIES = {
    401: "the key is missing or wrong",
    403: "the key may not list models",
    404: "the address is wrong, or the server lists no models",
    429: "it is busy, or the quota is used up; try again later",
}


def _models_request(base_url: str, dialect: str, key: str) -> tuple[str, dict[str, str]]:
    bare = base_url.rstrip("/")
    if dialect == "gemini":
        return f"{bare.removesuffix('/v1beta')}/v1beta/models?pageSize=1000", {"x-goog-api-key": key} if key else {}
    if dialect == "anthropic_messages":
        headers = {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
        return f"{bare.removesuffix('/v1')}/v1/models?limit=1000", headers
    return f"{bare}/models", {"authorization": f"Bearer {key}"} if key else {}

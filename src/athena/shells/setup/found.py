"""What there is to choose from: servers on this machine, and the models that a server offers."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import msgspec

from athena.errors import AthenaError
from athena.shells.config import OfferedModel, Upstream, read_models
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


def ask_models(
    provider: Provider, key: str, dialect: str = "", *, upstream: Upstream | None = None
) -> tuple[OfferedModel, ...]:
    """The models that a server offers to this key. Raises AthenaError with the address, what came back and what to do.

    As the gateway would ask: by the proxy, the authorities and the headers of `upstream`, past the proxies that the environment
    names, and without following a redirect, which would take the key along. `dialect`: what the server speaks; left out: what
    its address implies.
    """
    row = known_host(provider.base_url)
    dialect = dialect or (next(iter(row.profiles), "openai_chat") if row is not None else "openai_chat")
    url, headers = _models_request(provider.base_url, dialect, key)
    own = {name: value.reveal() for name, value in upstream.headers.items()} if upstream is not None else {}
    request = urllib.request.Request(url, headers={"accept": "application/json", "user-agent": "athena", **headers, **own})
    try:
        with _opener(upstream).open(request, timeout=_ASK_SECONDS) as answer:
            data = answer.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            if error.code in _REDIRECTS:
                moved = f"it has moved to {error.headers.get('location', 'another address')}: is that the base_url of its API?"
                raise AthenaError(f"{url} answers {error.code}; {moved}") from None
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


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Answers with a redirect are errors."""

    def redirect_request(self, *details: object) -> None:
        return None


def _opener(upstream: Upstream | None) -> urllib.request.OpenerDirector:
    proxy = upstream.proxy.reveal() if upstream is not None and upstream.proxy is not None else ""
    context = ssl.create_default_context(cafile=upstream.ca_file if upstream is not None else None)
    if upstream is not None and not upstream.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else {}),
        urllib.request.HTTPSHandler(context=context),
        _NoRedirects(),
    )


def _reason(error: OSError | ValueError) -> str:
    """What went wrong, and what to look at."""
    cause = getattr(error, "reason", error)
    words = getattr(cause, "strerror", None) or str(cause)
    return f"{words}; is {'the host name right' if isinstance(cause, socket.gaierror) else 'the server running'}?"


_REDIRECTS = (301, 302, 303, 307, 308)
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

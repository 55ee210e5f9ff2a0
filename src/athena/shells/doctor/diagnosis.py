"""What a failure or an answer means, and what to do about it. Pure: values in, words out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from athena.dialects import get_dialect
from athena.errors import UpstreamError
from athena.model.events import Error
from athena.shells.doctor.asking import ProbeReply

_QUOTA = re.compile(r"quota|credit|billing|balance|insufficient[_ ]funds|payment", re.IGNORECASE)
_EXPIRED = re.compile(r"expired|no longer valid|revoked", re.IGNORECASE)
_ABOUT_MODEL = re.compile(r"\bmodels?\b|deployment", re.IGNORECASE)
_NOT_THERE = re.compile(
    r"not (?:be )?found|does ?n[o']t exist|unknown|no such|not a valid|invalid model|not (?:exist|available|supported)"
    r"|no endpoints",
    re.IGNORECASE,
)
_REGION = re.compile(
    r"(?:us|eu|ap|cn|sg|uk|de|fr|jp|global|intl|asia|europe|regions?|locations?|deployments?)(?:-[a-z]+)?(?:-?[0-9]+)?",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"[^\s/]{0,500}/\S{0,500}")
"""A path or URL that an error repeats: the words in it are ours."""
_VERSION = re.compile(r"v[0-9]+[a-z0-9]*")


class Diagnosis(NamedTuple):
    """One problem: its name in `steps.PROBLEMS`, what was found, and the remedy."""

    problem: str
    said: str
    remedy: str


class UpstreamPlace(NamedTuple):
    """Where the settings of the upstream stand, so that a remedy can name them."""

    name: str
    """The upstream's name."""
    base_url: str
    model: str = ""
    has_key: bool = False
    key_from: str = ""
    """The setting that holds the key."""
    key_env: str = ""
    """The variable that tools of this host read their key from."""
    offered: tuple[str, ...] = ()
    """The models that it lists."""

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc

    def setting(self, key: str) -> str:
        return f"upstreams.{self.name}.{key}"


def of_failure(failure: UpstreamError, place: UpstreamPlace, seconds: float) -> Diagnosis:
    """The diagnosis where no answer came."""
    base = place.setting("base_url")
    match failure.code:
        case "upstream_dns_failed":
            remedy = f"see that {base} is spelled right and that this machine may look up names; behind a company's proxy, set "
            return Diagnosis("dns", failure.message, remedy + place.setting("proxy"))
        case "upstream_certificate":
            remedy = f"name the authority's file in {place.setting('ca_file')}; {place.setting('verify')}: false trusts anybody"
            return Diagnosis("certificate", failure.message, f"{remedy}, so use it for tests only")
        case "upstream_tls" | "tls_timeout":
            return Diagnosis("tls", failure.message, f"see that {base} names the right port and that no proxy stands between")
        case "proxy_refused" | "proxy_closed" | "proxy_protocol":
            remedy = f"see that {place.setting('proxy')} is right and that the proxy allows {place.host}"
            return Diagnosis("proxy_failed", failure.message, remedy)
        case "connect_timeout":
            return Diagnosis(
                "unreachable", failure.message, f"see that {place.host} is right and that no firewall stands between"
            )
        case "first_byte_timeout" | "idle_timeout" | "total_timeout":
            return Diagnosis(
                "slow",
                f"the upstream took the request and sent nothing for {seconds:g} seconds",
                "see whether the server is busy or still loads the model; --timeout SECONDS waits longer here, "
                f"{place.setting('timeouts.first_byte_s')} in the gateway",
            )
        case "upstream_unreachable":
            words = f"start the server, or correct host and port in {base}"
            return Diagnosis("refused" if "refused" in failure.message.lower() else "unreachable", failure.message, words)
        case _:
            return Diagnosis("server_error", failure.message, f"see the server's own log, and that {base} is the right address")


def of_page(reply: ProbeReply, place: UpstreamPlace) -> Diagnosis:
    """The diagnosis where a web page came."""
    said = f"a web page answers at {reply.url}, not an API"
    remedy = f"take the address of the API from the provider's documentation for {place.setting('base_url')}"
    return Diagnosis("web_page", said, f"{remedy}; it is often below /v1 or /api/v1, or on a host of its own")


def of_redirect(reply: ProbeReply, place: UpstreamPlace) -> Diagnosis:
    """The server sends us elsewhere. Athena does not follow: the key would go to an address that nobody configured."""
    where = reply.headers.get("location", "")[:200]
    said = f"the server answers {reply.status} and names another address: {where or 'none'}"
    return Diagnosis("redirect", said, f"if that address is right, set {place.setting('base_url')} to it")


def of_status(reply: ProbeReply, dialect: str, place: UpstreamPlace) -> Diagnosis | None:
    """What an error status means; None for an answer that is none."""
    if 300 <= reply.status < 400:
        return of_redirect(reply, place)
    if reply.is_page and reply.status < 500:
        return of_page(reply, place)
    if reply.status < 300:
        return None
    error = get_dialect(dialect).decode_error(reply.status, reply.headers, reply.body)
    said = f"the upstream says: {_short(error.message)}"
    if reply.status in (402, 429, 403, 400) and (error.kind == "billing" or _QUOTA.search(f"{error.message} {error.code}")):
        return Diagnosis("quota", said, f"top up the account behind the key of {place.name}, or use another key")
    if error.kind == "rate_limit":
        wait = f" {error.retry_after:g} seconds" if error.retry_after else " a moment"
        return Diagnosis("rate_limit", said, f"wait{wait} and run this again")
    if error.kind == "auth":
        return _of_key(error, said, place)
    if is_about_model(error) and place.model:
        return _of_model(said, place)
    if error.kind == "permission":
        return Diagnosis("no_permission", said, "see at the provider whether this key may use this model and endpoint")
    if error.kind in ("upstream", "server", "overloaded", "timeout"):
        return Diagnosis("server_error", said, "see the server's own log, or wait and run this again")
    return Diagnosis("refused_request", said, "the message is the upstream's own; `--json` shows all that came")


def is_about_model(error: Error) -> bool:
    """Does an error say that there is no such model?"""
    text = _ADDRESS.sub(" ", f"{error.message} {error.code}")
    is_named = error.code in ("model_not_found", "model_not_available") or error.param == "model"
    fits = error.kind in ("not_found", "invalid", "permission")
    return fits and (is_named or (bool(_ABOUT_MODEL.search(text)) and bool(_NOT_THERE.search(text))))


def _of_key(error: Error, said: str, place: UpstreamPlace) -> Diagnosis:
    if not place.has_key:
        variable = place.key_env or "NAME"
        return Diagnosis(
            "no_key",
            f"no key is configured for {place.name}, and {said}",
            f"export {variable}=... and set {place.setting('api_key_env')}: {variable} (or --api-key-env {variable})",
        )
    if _EXPIRED.search(f"{error.message} {error.code}"):
        return Diagnosis("expired_key", said, f"make a new key at the provider and put it where {place.key_from} takes it from")
    return Diagnosis("bad_key", said, f"see that {place.key_from} holds a key of {place.host}, whole and without quotes")


def _of_model(said: str, place: UpstreamPlace) -> Diagnosis:
    near = difflib.get_close_matches(place.model, place.offered, n=3, cutoff=0.4)
    if near:
        hint = f"the nearest that it lists: {', '.join(near)}"
    elif place.offered:
        hint = f"it lists {', '.join(place.offered[:5])}"
    else:
        hint = "see the provider's list of models"
    return Diagnosis("unknown_model", f"there is no model {place.model!r}: {said}", f"correct the model's name; {hint}")


def of_path(
    base_url: str, found_base: str | None, found_dialect: str, dialect: str, reply: ProbeReply, place: UpstreamPlace
) -> Diagnosis:
    """No API answers where one was expected; `found_base` and `found_dialect` say where one does, if one does."""
    setting = place.setting("base_url")
    if found_base is None:
        if reply.is_page:
            return of_page(reply, place)
        if 300 <= reply.status < 400:
            return of_redirect(reply, place)
        segments = urlsplit(base_url).path.strip("/").split("/")
        region = next((segment for segment in segments if _REGION.fullmatch(segment)), "")
        if region:
            return Diagnosis(
                "wrong_region_path",
                f"the server answers, but serves nothing below {urlsplit(base_url).path} (region or deployment {region!r})",
                f"correct {region!r} in {setting}: the provider's console shows the region and deployment of your account",
            )
        return Diagnosis(
            "wrong_base_url",
            f"the server answers {reply.status}, and none of the four APIs stands below {base_url}",
            f"take {setting} from the provider's documentation",
        )
    change = f"set {setting}: {found_base}" if found_base != base_url else ""
    if found_dialect != dialect:
        change = ", ".join(part for part in (change, f"set {place.setting('dialect')}: {found_dialect}") if part)
        return Diagnosis("wrong_dialect", f"{dialect} is configured and {found_dialect} answers at {found_base}", change)
    before, after = (urlsplit(url).path.strip("/").split("/") for url in (base_url, found_base))
    versions = [segment for segment in before if _VERSION.fullmatch(segment)]
    if len(versions) > 1 and len([segment for segment in after if _VERSION.fullmatch(segment)]) < len(versions):
        problem, said = "doubled_version", f"{base_url} names a version twice"
    elif reply.is_page:
        problem, said = "web_page", f"a web page answers at {reply.url}; the API stands below {found_base}"
    elif not versions:
        problem, said = "missing_version", f"the version is missing: the API stands below {found_base}"
    else:
        problem, said = "wrong_base_url", f"no API answers below {base_url}; one stands below {found_base}"
    return Diagnosis(problem, said, change)


def other_bases(base_url: str) -> list[str]:
    """Addresses on the same host below which the API may stand instead, the likeliest first."""
    parts = urlsplit(base_url)
    segments = [segment for segment in parts.path.split("/") if segment]
    single: list[str] = []
    for segment in segments:
        if not (_VERSION.fullmatch(segment) and any(_VERSION.fullmatch(one) for one in single)):
            single.append(segment)
    paths = ["/" + "/".join(single)] if single else []
    paths += [f"{paths[0]}/v1"] if paths and not any(map(_VERSION.fullmatch, single)) else []
    paths += ["/" + "/".join(single[:length]) for length in range(len(single) - 1, 0, -1)]
    paths += ["/v1", "/api/v1", "/openai/v1", "/api/openai/v1", "/compatible-mode/v1", "/v1beta", "/anthropic/v1"]
    bases = [f"{parts.scheme}://{parts.netloc}{path}" for path in paths]
    return [base for base in dict.fromkeys(bases) if base != base_url]


def _short(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


def nearest(names: Sequence[str], wanted: str) -> str:
    """The closest of some names, for a hint; empty where none is close."""
    return next(iter(difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)), "")

"""Which hosts and pages are let in: the rows of `tests/cases/web_access.toml`, and what the answers say to browsers."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from athena.errors import ConfigError
from athena.shells.config import Admitted, Config, GatewayKey, Preflight, WebAccess, WebRefusal
from athena.shells.config.web_access import clean_host, clean_origin

CASES = tomllib.loads((Path(__file__).parent.parent / "cases" / "web_access.toml").read_text("utf-8"))


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One configuration of the file."""

    bound: list[str] | None = None
    allow_hosts: list[str] = []
    allow_origins: list[str] = []
    keyed: bool = False


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests that differ in one header each, and the verdict on all of them."""

    name: str
    verdict: str
    rules: str = "own"
    method: str = "POST"
    headers: dict[str, str] = {}
    hosts: list[str] = []
    origins: list[str] = []
    sites: list[str] = []
    types: list[str] = []

    def requests(self) -> list[dict[str, str]]:
        """The headers of each request."""
        lists = {"host": self.hosts, "origin": self.origins, "sec-fetch-site": self.sites, "content-type": self.types}
        pairs = [[(name, value) for value in values] for name, values in lists.items() if values]
        return [{**self.headers, **dict(chosen)} for chosen in itertools.product(*pairs)]


RULES = msgspec.convert(CASES["rules"], dict[str, Rules])
ROWS = [
    pytest.param(case, headers, id=f"{case.name}: {index}")
    for case in msgspec.convert(CASES["case"], list[Case])
    for index, headers in enumerate(case.requests())
]


def access(name: str) -> WebAccess:
    rules = RULES[name]
    return WebAccess(allow_hosts=rules.allow_hosts, allow_origins=rules.allow_origins, keyed=rules.keyed, bound=rules.bound)


def said(verdict: object) -> str:
    match verdict:
        case Admitted(origin=""):
            return "pass"
        case Admitted(origin=origin):
            return f"pass: {origin}"
        case Preflight():
            return "preflight"
        case WebRefusal(status=status, code=code):
            return f"{status} {code}"
    raise AssertionError(verdict)


@pytest.mark.parametrize(("case", "headers"), ROWS)
def test_verdict(case: Case, headers: dict[str, str]) -> None:
    verdict = access(case.rules).judge(case.method, headers, ("POST",))
    assert said(verdict) == case.verdict, headers


def test_a_refusal_names_what_was_refused_and_the_setting() -> None:
    host = access("own").judge("GET", {"host": "attacker.example:12377"})
    assert isinstance(host, WebRefusal)
    assert "'attacker.example:12377'" in host.message
    assert "allow_hosts" in host.message
    origin = access("own").judge("GET", {"host": "localhost", "origin": "https://evil.example"})
    assert isinstance(origin, WebRefusal)
    assert "'https://evil.example'" in origin.message
    assert "allow_origins" in origin.message
    site = access("own").judge("GET", {"host": "localhost", "sec-fetch-site": "cross-site"})
    assert isinstance(site, WebRefusal)
    assert "allow_origins" in site.message


def test_a_refusal_repeats_only_so_much() -> None:
    for headers in ({"host": "a" * 60_000}, {"host": "localhost", "origin": "a" * 60_000}):
        refusal = access("own").judge("GET", headers)
        assert isinstance(refusal, WebRefusal)
        assert len(refusal.message) < 400


def preflight(headers: dict[str, str], rules: str = "pages", methods: tuple[str, ...] = ("POST",)) -> dict[str, str]:
    """The answer's headers to a preflight of an allowed page."""
    asked = {"host": "localhost", "origin": "https://app.example", "access-control-request-method": "POST", **headers}
    verdict = access(rules).judge("OPTIONS", asked, methods)
    assert isinstance(verdict, Preflight)
    return {name.decode(): value.decode() for name, value in verdict.headers}


def test_a_preflight_is_answered_for_the_page_and_the_path() -> None:
    answer = preflight({})
    assert answer["access-control-allow-origin"] == "https://app.example"
    assert answer["access-control-allow-methods"] == "POST"
    assert answer["access-control-max-age"] == "7200"
    assert "Origin" in answer["vary"].split(", ")
    assert "access-control-allow-headers" not in answer
    assert "access-control-allow-private-network" not in answer
    assert "access-control-allow-credentials" not in answer
    assert preflight({}, methods=("GET", "HEAD"))["access-control-allow-methods"] == "GET, HEAD"
    assert preflight({}, methods=())["access-control-allow-methods"] == "GET, HEAD, POST"
    assert preflight({}, "keys_any")["access-control-allow-origin"] == "*"


SDK_HEADERS = (
    # What the JavaScript SDKs of OpenAI, Anthropic and Google send from a browser.
    "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
    "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout",
    "anthropic-beta,anthropic-dangerous-direct-browser-access,anthropic-version,content-type,x-api-key,x-stainless-helper-method",
    "content-type,x-goog-api-client,x-goog-api-key",
    "authorization,content-type,openai-beta,openai-organization,openai-project",
    "api-key,content-type,http-referer,traceparent,user-agent,x-title",
)


@pytest.mark.parametrize("asked", SDK_HEADERS)
def test_headers_that_sdks_send_are_allowed(asked: str) -> None:
    assert preflight({"access-control-request-headers": asked})["access-control-allow-headers"].split(", ") == asked.split(",")


def test_other_headers_are_not() -> None:
    asked = "Content-Type , x-forwarded-for,cookie,host,x-stainless-ünsound,x-goog-\x01,,x-athena-a b,content-type"
    assert preflight({"access-control-request-headers": asked})["access-control-allow-headers"] == "content-type"


def test_private_networks_are_allowed_when_asked_for() -> None:
    answer = preflight({"access-control-request-private-network": "true"})
    assert answer["access-control-allow-private-network"] == "true"


def test_answers_carry_the_headers_of_their_page() -> None:
    answer = dict(access("pages").answer_headers("https://app.example"))
    assert answer[b"access-control-allow-origin"] == b"https://app.example"
    assert answer[b"vary"] == b"Origin"
    exposed = answer[b"access-control-expose-headers"].decode().split(", ")
    assert {"request-id", "x-request-id", "x-athena-warnings", "retry-after"} <= set(exposed)
    assert access("pages").answer_headers("") == ((b"vary", b"Origin"),)
    assert dict(access("keys_any").answer_headers("*"))[b"access-control-allow-origin"] == b"*"
    assert access("own").answer_headers("") == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Gateway.Example", "gateway.example"),
        (" gateway.example. ", "gateway.example"),
        ("gateway.example:8443", "gateway.example:8443"),
        ("::1", "[::1]"),
        ("[FD00:0::1]:80", "[fd00::1]:80"),
        ("*.Example", "*.example"),
        ("*", "*"),
    ],
)
def test_hosts_have_one_spelling(written: str, meant: str) -> None:
    assert clean_host(written) == meant


@pytest.mark.parametrize(
    "written", ["https://gateway.example", "gateway.example/", "a b", "*example", "a.*.b", "a:b", "a:70000"]
)
def test_what_is_no_host(written: str) -> None:
    with pytest.raises(ConfigError):
        clean_host(written)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://App.Example/", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("https://app.example:80", "https://app.example:80"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("vscode-file://vscode-app", "vscode-file://vscode-app"),
        ("file://", "file://"),
        ("*", "*"),
    ],
)
def test_origins_have_one_spelling(written: str, meant: str) -> None:
    assert clean_origin(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "null",
        "app.example",
        "https://app.example/path",
        "https://*.example",
        "https://a@b",
        "https://",
        "https://a b",
        "*://x y",
    ],
)
def test_what_is_no_origin(written: str) -> None:
    with pytest.raises(ConfigError):
        clean_origin(written)


def test_a_program_that_builds_its_own_configuration_cannot_let_every_page_in_without_keys() -> None:
    with pytest.raises(ConfigError, match="no key"):
        WebAccess.of(Config(allow_origins=("*",)), None)
    keys: tuple[Any, ...] = (GatewayKey(hash="sha256:" + "0" * 64),)
    WebAccess.of(Config(allow_origins=("*",), keys=keys), None)


def test_a_bound_address_that_no_url_can_hold_is_no_problem() -> None:
    WebAccess(keyed=True, bound=("fe80::1%eth0", "::", "0.0.0.0"))

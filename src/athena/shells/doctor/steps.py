"""What a check-up says: one value per step, and the problems that a step can name."""

from __future__ import annotations

from enum import Enum

import msgspec


class StepState(Enum):
    """How a step went."""

    OK = "ok"
    NOTE = "note"
    """It works, and a person should know something about it."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be tried, because of what failed before."""


class CheckStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a check-up."""

    name: str
    """What was looked at: `configuration`, `name`, `tool call`."""
    state: StepState
    said: str
    """What was found, in one sentence."""
    upstream: str = ""
    """The upstream it is about."""
    problem: str = ""
    """One of `PROBLEMS`, where something is wrong or worth knowing."""
    tried: str = ""
    """What was done: a request's method and URL, a name that was looked up."""
    came: str = ""
    """What came back: status, content type and the first bytes, without credentials."""
    remedy: str = ""
    """What to do about it."""


PROBLEMS = {
    "bad_config": "The configuration cannot be used as it is.",
    "unknown_setting": "The configuration holds something that is not used.",
    "untrusted_file": "An athena.yml is there and is not used, because it was not approved.",
    "no_upstream": "No upstream is configured.",
    "port_taken": "Another program has the port that the gateway listens on.",
    "dns": "The host of base_url has no address.",
    "refused": "Nothing listens at the address and port of base_url.",
    "unreachable": "The address of base_url cannot be reached.",
    "slow": "The upstream takes the request and does not answer in time.",
    "proxy_needed": "The upstream is reached only through the proxy that the environment names.",
    "proxy_failed": "The configured proxy does not lead to the upstream.",
    "http_for_tls": "base_url says http:// and the server speaks TLS.",
    "tls_for_http": "base_url says https:// and the server speaks plain HTTP.",
    "certificate": "The server's certificate is not trusted.",
    "tls": "No TLS connection comes about.",
    "web_page": "A web page answers instead of an API.",
    "redirect": "The server sends requests to another address.",
    "missing_version": "The address lacks the version that the API's paths begin with.",
    "doubled_version": "The address names the version twice.",
    "wrong_dialect": "The server speaks another API than the configured one.",
    "wrong_region_path": "The server answers, but not below the region or deployment in the path of base_url.",
    "wrong_base_url": "The server answers, but no API stands below base_url.",
    "no_key": "The upstream asks for a key and none is configured.",
    "expired_key": "The upstream says that the key has expired.",
    "bad_key": "The upstream refuses the key.",
    "no_permission": "The upstream knows the key and does not allow the request.",
    "quota": "The account has no credit or quota left.",
    "rate_limit": "The upstream takes no more requests for the moment.",
    "no_model": "There is no model to ask.",
    "unknown_model": "The upstream has no model of that name.",
    "no_list": "The upstream does not list its models.",
    "unknown_window": "How much the model takes is not known.",
    "empty_answer": "The answer claims success and holds nothing.",
    "not_the_dialect": "The answer is not what the dialect allows.",
    "cut_answer": "The answer stops in the middle.",
    "no_stream": "The upstream does not stream.",
    "no_tools": "The model or its server takes no tools.",
    "no_call": "The model answered with text where a tool was asked for.",
    "leaked_call": "The call stands in the model's text instead of the API's own place.",
    "bad_call": "The call came, and something is wrong with it.",
    "server_error": "The upstream failed.",
    "refused_request": "The upstream refuses the request.",
}
"""Every problem that a step can name, and what it means."""

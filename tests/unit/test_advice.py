"""Messages about an upstream's failure: the address, the cause, the remedy and the command that says more."""

from __future__ import annotations

import pytest

from athena.advice import advised
from athena.model.events import Error

PAGE = "<!doctype html><title>Welcome</title>"


@pytest.mark.parametrize(
    ("error", "has_key", "said"),
    [
        (
            Error("the upstream's answer is empty", code="upstream_empty"),
            True,
            ("http://host/v1 answered with an empty body", "upstreams.lab.dialect", "`athena help upstream_empty`"),
        ),
        (
            Error("JSON is malformed", code="upstream_protocol", raw=PAGE),
            True,
            ("http://host/v1 answered with a web page", "upstreams.lab.base_url", "`athena help upstream_protocol`"),
        ),
        (
            Error("404 page not found", status=404),
            True,
            ("http://host/v1 has no path for openai_chat", "upstreams.lab.base_url", "`athena help upstream_status`"),
        ),
        (
            Error("No auth", status=401),
            False,
            ("wants a key and none is set", "--api-key-env NAME", "`athena help upstream_auth`"),
        ),
        (
            Error("No auth", status=401),
            True,
            ("refused its credentials", "upstreams.lab.api_key", "`athena help upstream_auth`"),
        ),
    ],
)
def test_a_failure_has_cause_remedy_and_more(error: Error, has_key: bool, said: tuple[str, ...]) -> None:
    message = advised(error, "lab", "http://host/v1", "openai_chat", has_key=has_key)
    for words in said:
        assert words in message


def test_other_messages_stay_the_upstreams_own() -> None:
    error = Error("the model is overloaded", status=503)
    assert advised(error, "lab", "http://host/v1", "openai_chat", has_key=True) == error.message

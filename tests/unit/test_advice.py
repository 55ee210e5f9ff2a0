"""Messages about an upstream's failure: the address, the cause, the remedy and the command that says more."""

from __future__ import annotations

import pytest

from athena.advice import advised, lacks_path
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
            ("http://host/v1 has no path for openai_chat", "upstreams.lab.base_url", "`athena help upstream_path`"),
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


@pytest.mark.parametrize(
    ("status", "message", "lacks"),
    [
        (404, "404 page not found", True),
        (405, "Method Not Allowed", True),
        (404, "the upstream answered with status 404", True),
        (404, "the model `x` does not exist", False),
        (400, "not found", False),
    ],
)
def test_a_missing_path_is_told_from_a_missing_model(status: int, message: str, lacks: bool) -> None:
    assert lacks_path(Error(message, kind="not_found", status=status)) is lacks


def test_other_messages_stay_the_upstreams_own() -> None:
    error = Error("the model is overloaded", status=503)
    assert advised(error, "lab", "http://host/v1", "openai_chat", has_key=True) == error.message

"""What Chat and Responses must say alike about one error."""

from __future__ import annotations

import json

import pytest

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import Dialect
from athena.model.events import Error

BOTH = [get_dialect("openai_chat"), get_dialect("openai_responses")]


@pytest.mark.parametrize("name", dialect_names())
@pytest.mark.parametrize(("wait", "seconds"), [(0.02, "1"), (1.2, "2"), (1.5, "2"), (2.0, "2"), (2.5, "3"), (61.001, "62")])
def test_no_client_is_told_to_come_back_too_soon(name: str, wait: float, seconds: str) -> None:
    headers = get_dialect(name).encode_error(Error("m", kind="rate_limit", retry_after=wait)).headers
    assert headers["retry-after"] == seconds
    if name != "gemini":
        assert float(headers["retry-after-ms"]) == pytest.approx(wait * 1000, abs=1)


@pytest.mark.parametrize(
    ("code", "shown"), [("upstream_status", "conflict"), ("", "conflict"), ("idempotency_key_in_use", "idempotency_key_in_use")]
)
@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_a_conflict_has_a_code(dialect: Dialect, code: str, shown: str) -> None:
    answer = dialect.encode_error(Error("m", kind="conflict", code=code))
    assert answer.status == 409
    assert json.loads(answer.body)["error"] == {"message": "m", "type": "invalid_request_error", "param": None, "code": shown}


@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_a_path_that_an_upstream_lacks_is_no_model(dialect: Dialect) -> None:
    answer = dialect.encode_error(Error("m", kind="not_found", code="upstream_path", status=404))
    assert json.loads(answer.body)["error"]["code"] == "upstream_path"


@pytest.mark.parametrize("name", dialect_names())
@pytest.mark.parametrize(
    ("status", "code"), [(401, "upstream_auth"), (403, "upstream_auth"), (404, "upstream_status"), (500, "upstream_status")]
)
def test_an_error_without_a_code_gets_ours(name: str, status: int, code: str) -> None:
    """The code is the one that `athena help` explains with the remedy of this status."""
    assert get_dialect(name).decode_error(status, {}, b'{"error": {"message": "no"}}').code == code


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "insufficient_quota", "billing"),
        (429, "usage_not_included", "billing"),
        (400, "payment_required", "billing"),
        (400, "rate_limit_reached_error", "rate_limit"),
        (400, "content_filter", "content_policy"),
        (400, "cyber_policy", "content_policy"),
        (400, "previous_response_not_found", "not_found"),
        (500, "slow_down", "overloaded"),
        (500, "engine_overloaded_error", "overloaded"),
        (400, "RATE_LIMIT_EXCEEDED", "rate_limit"),
        (400, "server_error", "invalid"),
        (401, "rate_limit_exceeded", "auth"),
        (403, "model_not_found", "permission"),
    ],
)
def test_a_code_means_the_same_to_both(status: int, code: str, kind: str) -> None:
    body = json.dumps({"error": {"message": "m", "code": code}}).encode()
    assert [dialect.decode_error(status, {}, body).kind for dialect in BOTH] == [kind, kind]

"""An image for a model that reads only text: servers call it an error of their own, SDKs would ask again and again."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from athena.dialects import dialect_names, get_dialect

_MESSAGES: dict[str, list[str]] = tomllib.loads(
    (Path(__file__).parent.parent / "cases" / "refusals.toml").read_text(encoding="utf-8")
)["images"]
_BODIES: dict[str, Any] = {
    "nested": lambda said, status: {"error": {"code": status, "message": said, "type": "server_error"}},
    "flat": lambda said, status: {"code": status, "message": said, "type": "server_error"},
    "anthropic": lambda said, status: {"type": "error", "error": {"type": "api_error", "message": said}},
    "gemini": lambda said, status: {"error": {"code": status, "message": said, "status": "INTERNAL"}},
    "a string": lambda said, status: {"error": said},
}


@pytest.mark.parametrize("status", [500, 502])
@pytest.mark.parametrize("dialect", dialect_names())
def test_an_image_that_the_model_cannot_read_is_the_requests_fault(dialect: str, status: int) -> None:
    codec = get_dialect(dialect)
    for said in _MESSAGES["refused"]:
        for name, body in _BODIES.items():
            error = codec.decode_error(status, {}, json.dumps(body(said, status)).encode())
            assert (error.kind, error.status) == ("invalid", status), (name, said)
            assert said in error.message
            assert codec.encode_error(error).status == 400
    for said in (*_MESSAGES["another_fault"], "the image worker died"):
        error = codec.decode_error(status, {}, json.dumps(_BODIES["nested"](said, status)).encode())
        assert error.kind == "upstream", said

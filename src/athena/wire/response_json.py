"""A finished response of the Responses API as JSON, in the two parts in which it is kept: neither is written twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from athena.wire.surrogates import encode_json


class ResponseJson(NamedTuple):
    """The two parts."""

    rest: bytes
    """The object without its output."""
    output: bytes
    """The items of its output, as an array."""

    def whole(self) -> bytes:
        """The response as its client gets it."""
        return b'%b,"output":%b}' % (self.rest[:-1], self.output)


def response_json(response: Mapping[str, Any]) -> ResponseJson:
    """A response object, which has more fields than its output, in these parts."""
    rest = dict(response)
    output = rest.pop("output", None) or []
    return ResponseJson(encode_json(rest), encode_json(output))

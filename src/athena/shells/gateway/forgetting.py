"""`POST /learnt/forget`: what is asked and what is answered. Who may ask is the gateway's to say."""

from __future__ import annotations

from typing import Any

import msgspec

from athena.errors import InvalidRequest
from athena.serving.learning import Lesson
from athena.typed_values import reader
from athena.wire.recall import Recall


class WantedLessons(msgspec.Struct, forbid_unknown_fields=True):
    """Which lessons are meant: those of all upstreams, of one, or of one of its models."""

    upstream: str = ""
    model: str = ""


_read_wanted = reader(WantedLessons)


class Forgotten(msgspec.Struct):
    """What was forgotten, by one of so many server processes: each learns for itself."""

    forgotten: list[Lesson]
    workers: int


def wanted_lessons(value: dict[str, Any], recall: Recall | None = None) -> WantedLessons:
    """What a request's body means. Raises InvalidRequest."""
    try:
        wanted = _read_wanted(value)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from None
    if wanted.model and not wanted.upstream:
        raise InvalidRequest("model: the name of a model needs its upstream", path="model")
    return wanted

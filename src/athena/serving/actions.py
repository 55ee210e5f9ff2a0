"""What a `Serving` tells its driver to do: values, so that every driver and every test does the same with them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from athena.exchange import Step
from athena.serving.targets import Target
from athena.wire.response_json import ResponseJson

Stop = Literal["client_closed", "client_stalled", "shutdown", "internal_error"]
"""Why a driver ends a request before its answer is whole."""


class Build(msgspec.Struct, frozen=True):
    """Call `build`, then `next`."""

    heavy: bool
    """It may take long: build in a thread."""


class Send(msgspec.Struct, frozen=True):
    """Send this; call `sending` when it begins, then `head` or `failed`."""

    target: Target
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Pause(msgspec.Struct, frozen=True):
    """Call `next` again at this time."""

    until: float


class Keep(msgspec.Struct, frozen=True):
    """Keep this response, then call `kept`: the client's last event waits for it."""

    response: dict[str, Any]
    written: ResponseJson
    """The same as JSON."""


class Tell(msgspec.Struct, frozen=True):
    """Show this to the client; it is all that it gets."""

    step: Step
    is_lost: bool = False
    """The connection failed: a driver inside of the client's own process may raise its library's error instead."""


Action = Build | Send | Pause | Keep | Tell

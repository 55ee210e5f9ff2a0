"""One request of a client on its way through the gateway: what every endpoint needs to know of it."""

from __future__ import annotations

import msgspec

from athena.dialects.base import Dialect
from athena.serving.endpoints import Endpoint
from athena.serving.record import RequestRecord
from athena.shells.gateway.client import Client, Headers
from athena.shells.gateway.configured import Configured
from athena.shells.gateway.unserved import Unserved


class ReceivedRequest(msgspec.Struct, eq=False):
    """A request whose endpoint is known. Its key is known once it was asked for."""

    client: Client
    endpoint: Endpoint
    dialect: Dialect
    record: RequestRecord
    configured: Configured
    """What the request is served by from its beginning to its end."""
    unserved: Unserved
    key: str | None = None
    """The client's key, as it was sent."""

    @property
    def answer_headers(self) -> Headers:
        """What every answer to it carries."""
        return self.configured.answer_headers(self.record)

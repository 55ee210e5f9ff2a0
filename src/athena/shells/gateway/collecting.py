"""A client that is the gateway itself: it collects the answer to a request that was made for another one."""

from __future__ import annotations

from typing import Any

import msgspec

from athena.shells.gateway.inner_client import InnerClient


class CollectingClient(InnerClient):
    """Takes a whole answer to a request of Responses that is read already."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__("/v1/responses", headers)

    def compaction(self) -> str | None:
        """The sealed summary of an answer that is a compaction; None: it is none."""
        if self.status != 200 or self.is_cut:
            return None
        value: dict[str, Any] = msgspec.json.decode(self.body)
        found = [item["encrypted_content"] for item in value["output"] if item["type"] == "compaction"]
        return str(found[0]) if found else None

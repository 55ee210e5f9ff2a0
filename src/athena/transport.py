"""The engine under the official SDKs, in process: no server, the SDK's own retries, timeouts and cancellation.

    client = anthropic.Anthropic(http_client=httpx2.Client(transport=Transport(base_url="http://127.0.0.1:8000/v1")))

The SDK thinks that it talks to its own API. The transport reads the request in the SDK's dialect, sends it to the upstream in
the upstream's, and hands the answer back as the SDK expects it, streamed as it comes. `httpx` and `httpx2` clients both work:
everything handed back is made of the classes of whichever library made the request. Nothing here knows an event loop, so
asyncio and trio clients work wherever their library does, and a synchronous client may be shared by threads.

What is the SDK's stays the SDK's: its timeouts hold for the upstream (they travel with the request), its retries are the only
ones, closing its stream or cancelling its task ends the upstream's request, and a failure arrives as the status or the network
error that makes it raise its own classes. From the configuration come the routes with their fallbacks, formats and profiles and
how tools are taught to models that have none, asked once more where `reask` says so; what only a server needs (keys, ports,
logs, health, keep-alives, its own retries and timeouts) has no meaning here. One thing differs: nothing here has a clock, so
the window in which a prompted model may add a call (`collect_window_ms`) is looked at when the upstream says something or
ends, not in between. An answer is never different for it, only later if the upstream falls silent after a call.
"""

from __future__ import annotations

from athena.shells.transport.clients import AsyncTransport, Transport

__all__ = ["AsyncTransport", "Transport"]

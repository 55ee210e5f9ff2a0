"""Batches at this gateway: their endpoints, and the runner that answers their requests by the present configuration."""

from __future__ import annotations

import asyncio
from typing import Any

from athena.bulk.multipart import Upload, read_upload
from athena.serving.holding import RequestMemory
from athena.shells.config import BatchSettings
from athena.shells.gateway.batch_api import BatchApi, Lines, no_batches
from athena.shells.gateway.batch_runner import BatchRunner, ServeBatched
from athena.shells.gateway.configured import Configured
from athena.shells.gateway.incoming import as_it_is, read_body, read_request
from athena.shells.gateway.pieces import write_pieces
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.replies import reply_json
from athena.shells.gateway.resources import Resources
from athena.shells.store import Store
from athena.shells.store.batches import BatchStore


class BatchWork:
    """Takes batches in, shows and cancels them; once started, it works on those of the store."""

    def __init__(self, resources: Resources, serve: ServeBatched) -> None:
        """`serve` answers one request of a batch."""
        self._resources = resources
        self._serve = serve
        self._runner: BatchRunner | None = None
        self._works_by: tuple[Store, BatchSettings] | None = None
        """The store and settings that it works by."""
        self._is_started = False
        self._closing: set[asyncio.Task[None]] = set()

    def start(self, configured: Configured) -> None:
        """Begin with the work. Call it inside of the event loop."""
        self._is_started = True
        self.use(configured)

    def use(self, configured: Configured) -> None:
        """Work on batches by this configuration, where there is a loop and a store for it."""
        state, settings = configured.responses, configured.config.batches
        wanted = (state.store, settings) if state is not None and settings.enabled and self._is_started else None
        if wanted == self._works_by:
            return
        if self._runner is not None:
            task = asyncio.get_running_loop().create_task(self._runner.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            self._runner = None
        self._works_by = wanted
        if wanted is not None:
            store, settings = wanted
            self._runner = BatchRunner(BatchStore(store), settings, self._serve, store.limits.max_age_s)
            self._runner.start()

    async def answer(self, received: ReceivedRequest) -> None:
        """Batches and their files: taken in, shown, cancelled, deleted."""
        client, endpoint, record = received.client, received.endpoint, received.record
        config, state = received.configured.config, received.configured.responses
        if state is None or not config.batches.enabled:
            raise no_batches()
        limits, body_s = config.limits, config.timeouts.client_body_s
        body: dict[str, Any] | Upload = {}
        memory = RequestMemory(self._resources.memory)
        try:
            if client.method == "POST" and endpoint.stored == "files":
                content = await read_body(client, limits.body_bytes, body_s, memory)
                body = read_upload(content, client.headers.get("content-type", ""))
                del content
            elif client.method == "POST":
                nothing: dict[str, Any] = {}
                body, _, _ = await read_request(client, limits, body_s, memory, as_it_is, empty=nothing)
            api = BatchApi(BatchStore(state.store), config.batches, state.store.limits.max_bytes)
            scheme = client.headers.get("x-forwarded-proto", "https" if config.tls.cert else "http")
            base_url = f"{'https' if scheme == 'https' else 'http'}://{client.headers.get('host', '')}"
            answer = await api.answer(endpoint, client.method, client.query, body, record.key, client.headers, base_url)
            if self._runner is not None:
                self._runner.poke()
            if isinstance(answer, Lines):
                client.start(200, [*received.answer_headers, (b"content-type", answer.kind.encode())], None)
                record.status = 200
                await write_pieces(answer.pieces, client, config.timeouts.client_write_s)
            else:
                reply_json(received, answer)
        finally:
            memory.close()

    def stop(self) -> None:
        """Begin with no further request of a batch."""
        if self._runner is not None:
            self._runner.stop()

    async def close(self) -> None:
        """End now; what is under way is given back to the store."""
        if self._runner is not None:
            await self._runner.close()
            self._runner, self._works_by = None, None
        if self._closing:
            await asyncio.wait(tuple(self._closing))

"""The endpoints of stored Responses and conversations: kept here, at an upstream, or still being made."""

from __future__ import annotations

from typing import Any

from athena.serving.endpoints import credential
from athena.serving.holding import RequestMemory
from athena.shells.gateway.background_jobs import BackgroundJobs
from athena.shells.gateway.incoming import as_it_is, read_request
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.replies import reply_json
from athena.shells.gateway.resources import Resources
from athena.shells.gateway.stored_api import StoredApi, nothing_kept
from athena.state.ids import is_ours

_NATIVE_PATHS = {"response": "", "input_items": "/input_items", "cancel": "/cancel"}
"""Endpoints of stored responses that an upstream may have, and their paths there."""


class StoredEndpoint:
    """Shows, changes and deletes what is kept."""

    def __init__(self, resources: Resources, jobs: BackgroundJobs) -> None:
        self._resources = resources
        self._jobs = jobs

    async def answer(self, received: ReceivedRequest) -> None:
        client, endpoint, record, configured = received.client, received.endpoint, received.record, received.configured
        if configured.responses is None:
            raise nothing_kept()
        body: dict[str, Any] = {}
        nothing: dict[str, Any] = {}
        if client.method == "POST":
            limits, body_s = configured.config.limits, configured.config.timeouts.client_body_s
            memory = RequestMemory(self._resources.memory)
            try:
                body, _, _ = await read_request(client, limits, body_s, memory, as_it_is, empty=nothing)
            finally:
                memory.close()
        if configured.natives is not None and endpoint.stored in _NATIVE_PATHS and not is_ours(endpoint.names[0]):
            below, headers = _NATIVE_PATHS[endpoint.stored], received.answer_headers
            key = credential(client.headers, client.query)
            if await configured.natives.forward(endpoint.names[0], below, record.key, key, client, headers):
                return
        api = StoredApi(configured.responses)
        if endpoint.stored == "response" and client.method == "GET":
            after = await api.stream_from(record.key, endpoint.names[0], client.query)
            if after is not None:
                await self._jobs.follow(received, record.key, endpoint.names[0], after)
                return
        answer = await api.answer(endpoint, client.method, client.query, body, record.key)
        if endpoint.stored in ("response", "cancel") and client.method != "GET":
            self._jobs.cancel(endpoint.names[0])
        reply_json(received, answer)

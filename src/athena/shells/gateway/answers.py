"""The answers that are under way: how many there may be, who moves each of them, and how all of them are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from athena.errors import AthenaError
from athena.serving.holding import RequestMemory
from athena.serving.record import RequestRecord
from athena.serving.serving import Serving
from athena.shells.config import Config
from athena.shells.gateway.client import Client
from athena.shells.gateway.configured import Configured
from athena.shells.gateway.driver import Driver
from athena.shells.gateway.passing import PassThrough
from athena.shells.gateway.reading import ReadRequest
from athena.shells.gateway.resources import Resources


class OpenAnswers:
    """Serves requests that are read, each by a driver of its own."""

    def __init__(self, resources: Resources) -> None:
        self.is_draining = False
        """Is no new request taken?"""
        self._resources = resources
        self._drivers: set[Driver | PassThrough] = set()

    def __len__(self) -> int:
        return len(self._drivers)

    @property
    def held(self) -> int:
        """Bytes that wait in all of them."""
        return sum(driver.held for driver in tuple(self._drivers))

    def check_room(self, config: Config) -> None:
        """Raises where no further request is taken."""
        if self.is_draining or len(self._drivers) >= config.limits.requests:
            if not self.is_draining:
                self._resources.metrics.refusals.labels("requests").inc()
            reason = "is shutting down" if self.is_draining else "is serving as many requests as it may"
            raise AthenaError(f"the gateway {reason}", kind="overloaded", code="overloaded", retry_after=1)

    def serve(
        self,
        read: ReadRequest,
        configured: Configured,
        memory: RequestMemory,
        record: RequestRecord,
        client: Client,
        *,
        key: str | None,
        array: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Answer a request to this client; to be awaited at once, by the task that serves it. `headers` are the client's where
        they are not to be had from it any more; `array`: its stream is written as a list in JSON."""
        given = client.headers if headers is None else headers
        request, resources = read.request, self._resources
        record.model, record.stream, record.tools = request.model, request.stream, len(request.tools)
        if configured.traces is not None:
            configured.traces.begin(record, given)
        loop = asyncio.get_running_loop()
        serving = Serving(
            configured.shared,
            request,
            configured.targets(request.model),
            record,
            memory,
            headers=given,
            key=key,
            array=array,
            now=loop.time(),
            body=read.body,
            method=client.method,
            path=client.path,
            query=client.query,
            recall=read.recall,
        )
        more = list(configured.web_access.answer_headers(record.origin))
        return self.run(Driver(serving, client, resources.client, resources.lanes, more, read.plan, loop=loop))

    async def run(self, driver: Driver | PassThrough) -> None:
        """Let a driver serve its request to the end."""
        metrics = self._resources.metrics
        self._drivers.add(driver)
        metrics.open_streams.inc()
        try:
            await driver.run()
        finally:
            self._drivers.discard(driver)
            metrics.open_streams.dec()

    def stop(self) -> None:
        """The drain time is over: end what is left, telling every client."""
        for driver in tuple(self._drivers):
            driver.stop("shutdown")

"""What the person who runs the gateway asks of it: whether it is ready, its numbers, and to forget what it learnt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from athena.errors import InvalidRequest
from athena.serving.holding import RequestMemory
from athena.shells.gateway.admission import check_operator, may_know_upstreams
from athena.shells.gateway.forgetting import Forgotten, wanted_lessons
from athena.shells.gateway.incoming import read_request
from athena.shells.gateway.inspect_api import InspectApi
from athena.shells.gateway.metrics import CONTENT_TYPE
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.replies import reply, reply_json
from athena.shells.gateway.resources import Resources
from athena.shells.logs import log_forgotten
from athena.shells.recorder.token import inspector_token


class OperatorApi:
    """The endpoints that no model answers and no SDK knows."""

    def __init__(
        self, resources: Resources, is_draining: Callable[[], bool], inspector: Callable[[], InspectApi | None]
    ) -> None:
        """`inspector` is the present one, whose token is the operator's."""
        self._resources = resources
        self._is_draining = is_draining
        self._inspector = inspector

    async def health(self, received: ReceivedRequest) -> None:
        """The process answers."""
        reply_json(received, {"status": "ok"})

    async def ready(self, received: ReceivedRequest) -> None:
        """Whether requests are taken, for everybody; which upstreams there are, for those who may know."""
        config, resources = received.configured.config, self._resources
        is_ready = not self._is_draining() and bool(config.upstreams)
        body: dict[str, Any] = {"status": "ok" if is_ready else "unavailable"}
        if may_know_upstreams(config, received.client):
            body["upstreams"] = {name: resources.health.is_up(name) for name in config.upstreams}
            body["learnt"] = received.configured.learnt.lessons()
            body["routes"] = resources.routes.report()
        reply_json(received, body, 200 if is_ready else 503)

    async def metrics(self, received: ReceivedRequest) -> None:
        """The numbers, for Prometheus."""
        reply(received.client, 200, self._resources.metrics.render(), CONTENT_TYPE, received.answer_headers)

    async def forget_lessons(self, received: ReceivedRequest) -> None:
        """Forget what was learnt from refusals. It changes how every client is served, so none of their keys is enough."""
        config, client, resources = received.configured.config, received.client, self._resources
        check_operator(config, client, lambda: self._token(config.state_dir))
        memory = RequestMemory(resources.memory)
        try:
            wanted, _, _ = await read_request(client, config.limits, config.timeouts.client_body_s, memory, wanted_lessons)
        finally:
            memory.close()
        if wanted.upstream and wanted.upstream not in config.upstreams:
            raise InvalidRequest("upstream: there is none of this name", path="upstream")
        forgotten = received.configured.learnt.forget(wanted.upstream, wanted.model)
        for lesson in forgotten:
            resources.metrics.forgotten.labels(lesson.upstream).inc()
        log_forgotten(wanted.upstream, wanted.model, len(forgotten))
        reply_json(received, Forgotten(forgotten, config.workers))

    def _token(self, state_dir: str) -> str:
        inspector = self._inspector()
        return inspector.token if inspector is not None else inspector_token(Path(state_dir).expanduser())

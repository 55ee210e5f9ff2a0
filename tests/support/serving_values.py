"""A `Serving` without sockets: everything it needs, made from the configuration that a user would write."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from athena.dialects import get_dialect
from athena.model.request import Request
from athena.opaque import Envelope
from athena.serving.actions import Build, Pause, Send, Tell
from athena.serving.budget import Budget
from athena.serving.choosing import Chooser
from athena.serving.clock import ClientLimits
from athena.serving.health import RetryBudget, UpstreamHealth
from athena.serving.holding import RequestMemory
from athena.serving.learning import Learnt
from athena.serving.record import RequestRecord
from athena.serving.route_health import RouteHealth, RouteReport, RouteWatch
from athena.serving.serving import Serving
from athena.serving.shared import AnswerSettings, Shared
from athena.serving.tap import Watcher
from athena.serving.tokens import TokenCounter
from athena.shells.config import Router
from athena.shells.config.ready import KnownTargets
from support.config_file import load_config


class House:
    """What a gateway shares between its requests, on a clock that stands still unless it is moved."""

    def __init__(self, config: dict[str, Any], *watchers: Watcher, limits: ClientLimits | None = None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.config = load_config({"envelope_key": "test", **config}, Path(folder))
        self.now = 1000.0
        self.health = UpstreamHealth(self.config.health, lambda: self.now)
        self.memory = Budget(1 << 30, lambda: self.now)
        self.targets = KnownTargets(Router(self.config))
        self.decisions: list[tuple[RouteReport, str]] = []
        """Every change of a route, with its reason."""
        self.routes = RouteHealth(
            self.config.health.tools, lambda: self.now, lambda report, why: self.decisions.append((report, why))
        )
        self.shared = Shared(
            retries=self.config.retries,
            learnt=Learnt(lambda: self.now, keep_s=self.config.learning.keep_s),
            tokens=TokenCounter(),
            envelope=Envelope(b"k" * 32),
            store=None,
            answers=AnswerSettings(),
            memory=self.memory,
            health=self.health,
            retry_budget=RetryBudget(self.config.retries),
            client_limits=limits,
            chooser=Chooser(self.routes, self.health.is_up),
            watchers=(RouteWatch(self.routes), *watchers),
            wall_clock=lambda: 1_700_000_000.0,
        )

    def enter(self, request: Request, memory: RequestMemory) -> Serving:
        """A client's request as it was decoded; whoever made its memory gives it back."""
        return self._serving(request, memory)

    def serve(self, body: dict[str, Any], *, dialect: str = "openai_chat", now: float | None = None, **headers: str) -> Serving:
        """A client's request, for the path of its dialect that says nothing else."""
        request = get_dialect(dialect).decode_request(body, model=None, stream=None, version=None)
        return self._serving(request, RequestMemory(self.memory), now=now, headers=headers)

    def _serving(
        self, request: Request, memory: RequestMemory, *, now: float | None = None, headers: dict[str, str] | None = None
    ) -> Serving:
        return Serving(
            self.shared,
            request,
            self.targets.of(request.model),
            RequestRecord(request_id="req_1", dialect=request.dialect, model=request.model, stream=request.stream),
            memory,
            headers={name.replace("_", "-"): value for name, value in (headers or {}).items()},
            key=None,
            array=False,
            now=self.now if now is None else now,
        )


def next_send(serving: Serving, now: float = 1000.0) -> Send | Tell:
    """What is to be sent, or told: requests are built on the way, and pauses are over at once."""
    while True:
        action = serving.next(now)
        if isinstance(action, Build):
            serving.build()
        elif isinstance(action, Send | Tell):
            return action
        else:
            assert isinstance(action, Pause), "nothing is kept before it is sent"
            now = action.until

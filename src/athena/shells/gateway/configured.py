"""One configuration made ready for requests. It is swapped whole on reload: requests under way keep the one they began with."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from athena.serving.clock import ClientLimits
from athena.serving.health import RetryBudget
from athena.serving.learning import Learnt
from athena.serving.record import RequestRecord
from athena.serving.route_health import RouteWatch
from athena.serving.shared import AnswerSettings, Shared
from athena.serving.tap import Watcher
from athena.serving.targets import Target
from athena.shells.config import Config, Router, WebAccess
from athena.shells.config.ready import KnownTargets
from athena.shells.gateway.client import Headers
from athena.shells.gateway.native_state import NativeResponses
from athena.shells.gateway.resources import Resources
from athena.shells.gateway.responses_state import ResponsesState
from athena.shells.gateway.taps import DebugBodies, Transformations
from athena.shells.logs.redactor import secrets_of
from athena.shells.recorder.recorder import Recorder

if TYPE_CHECKING:
    from athena.shells.gateway.telemetry import Traces

LOG = logging.getLogger("athena")


class Configured:
    """What is asked of a configuration for each request, found out once."""

    def __init__(
        self,
        config: Config,
        router: Router,
        web_access: WebAccess,
        resources: Resources,
        *,
        recorder: Recorder,
        responses: ResponsesState | None,
        natives: NativeResponses | None,
        traces: Traces | None,
        watchers: tuple[Watcher, ...],
    ) -> None:
        """`watchers` watch every request besides those that the configuration asks for."""
        self.config = config
        self.web_access = web_access
        self.recorder = recorder
        self.responses = responses
        """Keeps Responses; None: nothing is kept here."""
        self.natives = natives
        """What upstreams keep themselves."""
        self.traces = traces
        self.secrets = tuple(secrets_of(config))
        self.learnt = Learnt(
            time.monotonic,
            partial(resources.changes.has_learnt, config.learning.keep_s),
            resources.changes.corrected,
            keep_s=config.learning.keep_s,
            correct=config.learning.correct,
        )
        self._targets = KnownTargets(router)
        timeouts = config.timeouts
        self.shared = Shared(
            retries=config.retries,
            learnt=self.learnt,
            tokens=resources.tokens,
            envelope=resources.envelope,
            store=resources.opaque_store,
            seal=resources.sealer.seal,
            answers=AnswerSettings(
                stream_error_stop=config.stream_error_stop,
                reasoning_fields=config.reasoning_fields,
                hide_auth_errors=bool(config.keys),
                pass_junk=config.passthrough_invalid,
            ),
            memory=resources.memory,
            health=resources.health,
            retry_budget=RetryBudget(config.retries),
            chooser=resources.chooser,
            client_limits=ClientLimits(timeouts.hold_head_s, timeouts.keep_alive_s, timeouts.client_write_s),
            watchers=(
                RouteWatch(resources.routes),
                resources.numbers,
                resources.lines,
                DebugBodies(self.secrets),
                *((Transformations(),) if config.log.transformations else ()),
                *((recorder,) if recorder.mode != "off" or recorder.sse_dir else ()),
                *((traces,) if traces is not None else ()),
                *watchers,
                *((natives,) if natives is not None else ()),
            ),
            wall_clock=time.time,
            tap_failed=_tap_failed,
        )

    def targets(self, model: str) -> tuple[Target, ...]:
        """The targets of a model name. Raises UnknownModel."""
        return self._targets.of(model)

    def answer_headers(self, record: RequestRecord) -> Headers:
        """The headers of every answer: the request's id, and what a web page needs that may read it."""
        value = record.request_id.encode()
        return [(b"request-id", value), (b"x-request-id", value), *self.web_access.answer_headers(record.origin)]


def _tap_failed(request_id: str, error: Exception) -> None:
    LOG.error("request %s is no longer watched by one of its taps, which failed", request_id, exc_info=error)

"""What changes about upstreams while the gateway runs, told to the log and counted."""

from __future__ import annotations

import logging

from athena.serving.breaker import BreakerState
from athena.serving.refusals import TOOLS
from athena.serving.route_health import RouteReport, RouteState
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.model_labels import ModelLabels
from athena.shells.logs import log_refusal

LOG = logging.getLogger("athena")
_UPSTREAM_WORDS = {
    BreakerState.OPEN: "is left out",
    BreakerState.HALF_OPEN: "is tried again",
    BreakerState.CLOSED: "is back",
}


class ChangeReports:
    """Told by the health of upstreams and routes, and by what is learnt from refusals."""

    def __init__(self, metrics: Metrics, labels: ModelLabels) -> None:
        self._metrics = metrics
        self._labels = labels

    def upstream_changed(self, upstream: str, state: BreakerState, why: str) -> None:
        """An upstream is left out, tried again, or back."""
        self._metrics.transitions.labels(upstream, state.value).inc()
        level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
        fields = {"upstream": upstream, "state": state.value, "reason": why}
        LOG.log(level, "upstream %s %s: %s", upstream, _UPSTREAM_WORDS[state], why, extra={"fields": fields})

    def route_changed(self, report: RouteReport, why: str) -> None:
        """A model of an upstream is left out for its answers, or back."""
        label = self._labels.label(report.model)
        self._metrics.route_transitions.labels(report.upstream, label, report.state.value).inc()
        is_out = report.state is RouteState.OUT
        words = "is left out while there is another target" if is_out else "is back"
        fields = {
            "upstream": report.upstream, "upstream_model": report.model, "state": report.state.value, "reason": why,
            "judged": report.judged, "bad": report.bad, "found": report.found,
        }  # fmt: skip
        level = logging.WARNING if is_out else logging.INFO
        LOG.log(level, "%s/%s %s: %s", report.upstream, report.model, words, why, extra={"fields": fields})

    def has_learnt(self, keep_s: float, upstream: str, model: str, feature: str) -> None:
        """An upstream refuses this, and is asked without it for so many seconds."""
        log_refusal(upstream, model, feature, keep_s)
        # Names of parameters are the clients': they would make series without end.
        self._metrics.learnt.labels(upstream, feature.partition(":")[0]).inc()
        if feature == TOOLS:
            self._metrics.tool_switches.labels(upstream).inc()

    def corrected(self, upstream: str, feature: str) -> None:
        """A request was answered only when it was asked without this."""
        self._metrics.corrected.labels(upstream, feature.partition(":")[0]).inc()

"""The gateway's numbers in Prometheus form.

Label values come from configuration (upstream, profile, format) or from closed lists, never from a client's text: a model name
is labelled only when a rule of the configuration maps to it, so no client can make the table grow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from athena.serving.breaker import BreakerState
from athena.serving.lane import Lane
from athena.shells.gateway.numbers import Numbers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_MICROSECONDS = (5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20000)


class Metrics:
    """Every number that the gateway shows at `/metrics`."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        by_route = ("dialect", "upstream")
        self.requests = numbers.counter("athena_requests", "Requests answered", (*by_route, "upstream_dialect", "outcome"))
        self.attempts = numbers.counter("athena_upstream_attempts", "Requests sent upstream", ("upstream", "outcome"))
        self.calls = numbers.counter("athena_tool_calls", "Tool calls delivered", ("upstream", "model", "source"))
        self.detections = numbers.counter("athena_format_detections", "Answers with calls found in text", ("format",))
        self.format_errors = numbers.counter("athena_format_errors", "Calls in text that could not be used", ("format", "code"))
        self.repairs = numbers.counter("athena_repairs", "Arguments repaired", ("format",))
        self.leaks = numbers.counter("athena_leaked_answers", "Answers whose calls leaked as text", ("upstream", "model"))
        self.bad_calls = numbers.counter(
            "athena_bad_calls",
            "Calls that were invalid, unknown or off their schema",
            ("upstream", "model", "reason"),
        )
        self.answers = numbers.counter("athena_answers", "Answers of upstreams that were judged", ("upstream", "model"))
        self.findings = numbers.counter(
            "athena_findings",
            "What was wrong with them, by class; the detail is a leak's format or an error's kind",
            ("upstream", "model", "finding", "detail"),
        )
        self.canaries = numbers.counter(
            "athena_canaries",
            "Requests that tried whether a model that is left out is back",
            ("upstream", "model"),
        )
        self.route_up = numbers.gauge(
            "athena_route_up", "1 unless the model is left out for its answers", ("upstream", "model"), lowest=True
        )
        self.route_transitions = numbers.counter(
            "athena_route_transitions", "Models left out for their answers, and taken back", ("upstream", "model", "state")
        )
        self.unchecked_calls = numbers.counter(
            "athena_unchecked_calls",
            "Calls not held against their whole schema, because that would take too much work",
            ("upstream", "reason"),
        )
        self.echoes = numbers.counter(
            "athena_echoes", "Calls in text that the model quoted from the request", ("upstream", "model", "policy")
        )
        self.tokens = numbers.counter(
            "athena_tokens", "Tokens as upstreams reported them", ("upstream", "model", "key", "kind")
        )
        self.losses = numbers.counter("athena_losses", "Request fields dropped, emulated or repaired", ("action",))
        self.answer_losses = numbers.counter(
            "athena_answer_losses", "Parts of answers that a client's dialect has no place for", ("action",)
        )
        self.tool_switches = numbers.counter(
            "athena_tool_mode_switches",
            "Models found to refuse tools and asked by prompt since",
            ("upstream",),
        )
        self.learnt = numbers.counter(
            "athena_learnt",
            "Features that an upstream was found to refuse; requests go without them since",
            ("upstream", "feature"),
        )
        self.forgotten = numbers.counter(
            "athena_forgotten_lessons", "What was learnt and forgotten again because somebody asked for it", ("upstream",)
        )
        self.corrected = numbers.counter(
            "athena_corrected_requests",
            "Requests that an upstream refused for a feature and answered without it",
            ("upstream", "feature"),
        )
        self.prompted = numbers.counter(
            "athena_prompted_requests", "Requests whose tools went into the prompt", ("upstream", "style")
        )
        self.open_streams = numbers.gauge("athena_open_streams", "Streams open right now").labels()
        self.sockets = numbers.gauge("athena_websocket_connections", "WebSockets of clients open right now").labels()
        self.socket_ends = numbers.counter("athena_websocket_ends", "WebSockets that ended, by the reason", ("reason",))
        self.held_bytes = numbers.gauge("athena_held_bytes", "Bytes held back while their meaning is undecided")
        self.upstream_up = numbers.gauge(
            "athena_upstream_up", "1 unless the upstream is cooling down", ("upstream",), lowest=True
        )
        self.transitions = numbers.counter(
            "athena_upstream_transitions", "Changes of the circuit breaker, by the new state", ("upstream", "state")
        )
        self.queue_refusals = numbers.counter(
            "athena_upstream_queue_refusals", "Requests for which an upstream had no place", ("upstream", "reason")
        )
        self.refusals = numbers.counter(
            "athena_refusals", "Requests and connections refused because a budget was used up", ("budget",)
        )
        self.recordings = numbers.counter(
            "athena_recordings", "Exchanges that were recorded, and that were dropped for want of room or disk", ("result",)
        )
        parts = numbers.counter(
            "athena_request_parts", "Messages, tool lists and instructions of requests, known from before or new", ("seen",)
        )
        self.known_parts, self.new_parts = parts.labels("before"), parts.labels("new")
        self.history_cache = numbers.gauge(
            "athena_history_cache_bytes", "What the parts of requests that may come again take in memory"
        )
        self.store_failures = numbers.counter("athena_store_failures", "Operations of the store that failed").labels()
        self.unkept = numbers.counter(
            "athena_unkept_responses", "Responses that were answered and could not be kept", ("reason",)
        )
        self._circuit = numbers.gauge(
            "athena_upstream_circuit", "Server processes whose circuit breaker is in that state", ("upstream", "state")
        )
        self._requests = numbers.gauge(
            "athena_upstream_requests", "Requests in work at an upstream, or waiting for a place", ("upstream", "state")
        )
        self._places = numbers.gauge("athena_upstream_places", "Requests that may be in work at an upstream", ("upstream",))
        self._queue = numbers.gauge("athena_upstream_queue", "Requests that may wait for a place", ("upstream",))
        self._used = numbers.gauge("athena_budget_used", "What is used of each budget right now", ("budget",))
        self._limit = numbers.gauge("athena_budget_limit", "The limit of each budget", ("budget",))
        self.first_byte = numbers.histogram(
            "athena_first_byte_seconds", "Time to the first byte for the client", by_route, buckets=_SECONDS
        )
        self.duration = numbers.histogram(
            "athena_request_seconds", "Time to the last byte for the client", by_route, buckets=_SECONDS
        )
        self.chunk_overhead = numbers.histogram(
            "athena_chunk_overhead_microseconds",
            "Our own time per upstream read, averaged over an answer",
            by_route,
            buckets=_MICROSECONDS,
        )

    def watch(self, budget: str, used: Callable[[], float], limit: Callable[[], float]) -> None:
        """Show a budget: what is used of it, and its limit."""
        self._used.set_function(used, budget)
        self._limit.set_function(limit, budget)
        self.refusals.labels(budget)

    def watch_upstream(self, name: str, lane: Lane[Any], is_in: Callable[[BreakerState], float]) -> None:
        """Show an upstream's places, its queue and the state of its breaker."""
        self._requests.set_function(lambda: lane.in_work, name, "in_work")
        self._requests.set_function(lambda: lane.waiting, name, "waiting")
        self._places.set_function(lambda: lane.places, name)
        self._queue.set_function(lambda: lane.queue, name)
        for state in BreakerState:
            self._circuit.set_function(partial(is_in, state), name, state.value)

    def render(self) -> bytes:
        """The exposition text, of all processes."""
        return self._numbers.render()

    def refresh(self) -> None:
        """Share what is only known when asked."""
        self._numbers.refresh()

"""The gateway's numbers in Prometheus form. One registry per gateway, so two in one process do not mix.

Label values come from configuration (upstream, profile, format) or from closed lists, never from a client's text: a model name
is labelled only when a rule of the configuration maps to it, so nobody can grow the table from outside.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_MICROSECONDS = (5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20000)


class Metrics:
    """Every number the gateway keeps."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        by_route = ("dialect", "upstream")
        self.requests = Counter(
            "athena_requests", "Requests answered", (*by_route, "upstream_dialect", "outcome"), registry=registry
        )
        self.attempts = Counter(
            "athena_upstream_attempts", "Requests sent upstream", ("upstream", "outcome"), registry=registry
        )
        self.calls = Counter("athena_tool_calls", "Tool calls delivered", ("upstream", "model", "source"), registry=registry)
        self.detections = Counter(
            "athena_format_detections", "Answers with calls found in text", ("format",), registry=registry
        )
        self.format_errors = Counter(
            "athena_format_errors", "Calls in text that could not be used", ("format", "code"), registry=registry
        )
        self.repairs = Counter("athena_repairs", "Arguments repaired", ("format",), registry=registry)
        self.leaks = Counter(
            "athena_leaked_answers", "Answers whose calls leaked as text", ("upstream", "model"), registry=registry
        )
        self.bad_calls = Counter(
            "athena_bad_calls",
            "Calls that were invalid, unknown or off their schema",
            ("upstream", "model", "reason"),
            registry=registry,
        )
        self.tokens = Counter("athena_tokens", "Tokens as upstreams reported them", ("upstream", "kind"), registry=registry)
        self.losses = Counter("athena_losses", "Request fields dropped, emulated or repaired", ("action",), registry=registry)
        self.tool_switches = Counter(
            "athena_tool_mode_switches",
            "Models found to refuse tools and asked by prompt since",
            ("upstream",),
            registry=registry,
        )
        self.prompted = Counter(
            "athena_prompted_requests", "Requests whose tools went into the prompt", ("upstream", "style"), registry=registry
        )
        self.open_streams = Gauge("athena_open_streams", "Streams open right now", registry=registry)
        self.held_bytes = Gauge("athena_held_bytes", "Bytes held back while their meaning is undecided", registry=registry)
        self.upstream_up = Gauge(
            "athena_upstream_up", "1 unless the upstream is cooling down", ("upstream",), registry=registry
        )
        self.first_byte = Histogram(
            "athena_first_byte_seconds", "Time to the first byte for the client", by_route, buckets=_SECONDS, registry=registry
        )
        self.duration = Histogram(
            "athena_request_seconds", "Time to the last byte for the client", by_route, buckets=_SECONDS, registry=registry
        )
        self.chunk_overhead = Histogram(
            "athena_chunk_overhead_microseconds",
            "Our own time per upstream read, averaged over an answer",
            by_route,
            buckets=_MICROSECONDS,
            registry=registry,
        )

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)

"""The gateway's numbers in Prometheus form.

Label values come from configuration (upstream, profile, format) or from closed lists, never from a client's text: a model name
is labelled only when a rule of the configuration maps to it, so nobody can grow the table from outside.
"""

from __future__ import annotations

from athena.shells.gateway.numbers import Numbers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_MICROSECONDS = (5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20000)


class Metrics:
    """Every number the gateway keeps."""

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
        self.tokens = numbers.counter("athena_tokens", "Tokens as upstreams reported them", ("upstream", "kind"))
        self.losses = numbers.counter("athena_losses", "Request fields dropped, emulated or repaired", ("action",))
        self.answer_losses = numbers.counter(
            "athena_answer_losses", "Parts of answers that a client's dialect has no place for", ("action",)
        )
        self.tool_switches = numbers.counter(
            "athena_tool_mode_switches",
            "Models found to refuse tools and asked by prompt since",
            ("upstream",),
        )
        self.prompted = numbers.counter(
            "athena_prompted_requests", "Requests whose tools went into the prompt", ("upstream", "style")
        )
        self.open_streams = numbers.gauge("athena_open_streams", "Streams open right now").labels()
        self.held_bytes = numbers.gauge("athena_held_bytes", "Bytes held back while their meaning is undecided")
        self.upstream_up = numbers.gauge(
            "athena_upstream_up", "1 unless the upstream is cooling down", ("upstream",), lowest=True
        )
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

    def render(self) -> bytes:
        """The exposition text, of all processes."""
        return self._numbers.render()

    def refresh(self) -> None:
        """Share what is only known when asked."""
        self._numbers.refresh()

"""Faults put to `Serving` without a socket.

The clock is a number: where a script sleeps, it moves, and every limit that ends on the way is served in its order. A request
that would wait for ever fails the test.
"""

from __future__ import annotations

from collections import Counter
from math import inf

import msgspec

from athena.dialects import get_dialect
from athena.errors import UpstreamError, UpstreamTimeout
from athena.exchange import Head, Step
from athena.model.request import Request
from athena.serving.actions import Build, Pause, Send, Tell
from athena.serving.endpoints import find_endpoint
from athena.serving.holding import RequestMemory
from athena.serving.network import ClientSettings
from athena.serving.serving import Serving, ServingState
from support.fault_judge import Answer, request_body
from support.heard_answers import HeardAnswers, HeardEnd, HeardHead
from support.serving_values import House
from support.upstream_talk import Asked

_UPSTREAM_SPEAKS = (ServingState.SENDING, ServingState.READING)
_MOST_LOOKS = 1000
"""Calls of `tick` in one silence: more would be a loop that no time passes in."""


class FaultDriver:
    """Serves requests of clients from the faults, one after the other."""

    def __init__(self, house: House) -> None:
        limits = house.config.limits
        self.house = house
        self._answers = HeardAnswers(
            ClientSettings(max_decoded_bytes=limits.answer_bytes, max_decoded_ratio=limits.decompress_ratio)
        )
        self._visits: Counter[str] = Counter()
        self._questions: dict[tuple[str, bool], Request] = {}

    def ask(self, client: str, model: str, *, stream: bool) -> Answer:
        """One question of a client of that dialect, and all that it gets. Only the model differs from one to the next."""
        question = self._questions.get((client, stream))
        if question is None:
            question = self._questions[client, stream] = _question(client, stream=stream)
        memory = RequestMemory(self.house.memory)
        serving = self.house.enter(msgspec.structs.replace(question, model=model), memory)
        drive = _Drive(serving, self._answers, self._visits, self.house.now)
        try:
            return drive.run()
        finally:
            serving.close(drive.now)
            memory.close()


def _question(client: str, *, stream: bool) -> Request:
    path, body = request_body(client, "any", stream=stream)
    bare, _, query = path.partition("?")
    endpoint = find_endpoint(bare, query, {})
    assert endpoint is not None
    assert not endpoint.array
    return get_dialect(endpoint.dialect).decode_request(body, model=endpoint.model, stream=endpoint.stream, version=None)


class _Drive:
    def __init__(self, serving: Serving, answers: HeardAnswers, visits: Counter[str], now: float) -> None:
        self.now = now
        self._serving = serving
        self._answers = answers
        self._visits = visits
        self._began = now
        self._head: Head | None = None
        self._shown: list[bytes] = []
        self._done = False

    def run(self) -> Answer:
        serving = self._serving
        while serving.state is not ServingState.OVER:
            match serving.next(self.now):
                case Build():
                    serving.build()
                case Send() as request:
                    self._send(request)
                case Pause(until=until):
                    self.now = until
                case Tell(step=step):
                    self._show(step)
        assert self._head is not None, "the client got no head"
        body = b"".join(self._shown)
        lines = "".join(f"{name}: {value}\r\n" for name, value in self._head.headers.items())
        return Answer(
            self._head.status,
            {name.lower(): value for name, value in self._head.headers.items()},
            body,
            self.now - self._began,
            self._done,
            lines.encode() + body,
        )

    def _show(self, step: Step) -> None:
        if step.head is not None:
            assert self._head is None, "a second head"
            self._head = step.head
        if step.output:
            assert self._head is not None, "bytes before the head"
            assert not self._done, "bytes after the end"
            self._shown.append(step.output)
        self._done = self._done or step.done

    # -- one attempt ---------------------------------------------------------------------------------------------------------

    def _send(self, request: Send) -> None:
        serving = self._serving
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in request.headers}
        asked = Asked("POST", request.path, headers, request.body)
        assert asked.dialect, f"nobody should ask for {request.path}"
        number = self._visits[asked.model]
        self._visits[asked.model] += 1
        self._first_byte_at = self.now + request.target.timeouts.first_byte
        self._total_at = self.now + request.target.timeouts.total
        serving.sending(self.now)
        for heard in self._answers.to(asked, number):
            if isinstance(heard, bytes):
                self._show(serving.data(heard, self.now))
            elif isinstance(heard, HeardHead):
                serving.head(heard.status, heard.headers, self.now)
            elif isinstance(heard, HeardEnd):
                self._end(heard.failure)
            else:
                self._silent(heard)
            if serving.state not in _UPSTREAM_SPEAKS:
                return
        raise AssertionError("the answer has no end")

    def _end(self, failure: UpstreamError | None) -> None:
        if self._serving.state is ServingState.READING:
            self._show(self._serving.end(failure, self.now))
        else:
            assert failure is not None, "an end without a beginning"
            self._show(self._serving.failed(failure, self.now))

    # -- time ----------------------------------------------------------------------------------------------------------------

    def _silent(self, seconds: float) -> None:
        """Time passes, and what is due in it happens."""
        serving, until = self._serving, self.now + seconds
        for _ in range(_MOST_LOOKS):
            if serving.state not in _UPSTREAM_SPEAKS:
                return
            waits_for_head = serving.state is ServingState.SENDING
            patience = min(self._first_byte_at, self._total_at) if waits_for_head else inf
            due = min(serving.clock.deadline, patience)
            if due > until:
                self.now = until
                return
            assert due < inf, "it would wait for ever"
            self.now = max(self.now, due)
            if self.now >= patience:
                code = "first_byte_timeout" if patience == self._first_byte_at else "total_timeout"
                late = UpstreamTimeout("the upstream took too long", code=code)
                late.request_sent = True
                self._end(late)
            else:
                self._show(serving.tick(self.now))
        raise AssertionError("time does not pass")

"""Faults put to `Serving` without a socket: the scripts of the faulty upstream write, their bytes are read by the framing and
the decoder that the upstream client uses, both of which are pure, and what they report goes into `Serving`.

The clock is a number: where a script sleeps, it moves, and every limit that ends on the way is served in its order. A request
that would wait for ever fails the test.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Coroutine, Generator
from math import inf
from types import coroutine
from typing import cast

from athena.errors import UpstreamClosed, UpstreamError, UpstreamProtocol, UpstreamTimeout
from athena.exchange import Head, Step
from athena.serving.actions import Build, Pause, Send, Tell
from athena.serving.holding import RequestMemory
from athena.serving.network import ClientSettings
from athena.serving.retries import with_relative_wait
from athena.serving.serving import Serving, ServingState
from athena.shells.upstream.encoding import ContentDecoder, decoder_for
from athena.shells.upstream.framing import ResponseFraming
from athena.shells.upstream.response import PORTION
from support.fault_judge import Answer, request_body
from support.fault_scripts import FAULTS
from support.serving_values import House
from support.upstream_talk import Asked, Talk

_UPSTREAM_SPEAKS = (ServingState.SENDING, ServingState.READING)
_MOST_LOOKS = 1000
"""Calls of `tick` in one silence: more would be a loop that no time passes in."""

Said = bytes | float
"""What a script does: bytes that it writes, or seconds of silence."""


class SaidTalk(Talk):
    """Everything that the script does comes out of its coroutine, one after the other."""

    was_reset = False

    async def raw(self, data: bytes) -> None:
        await _say(data)

    async def sleep(self, seconds: float) -> None:
        await _say(seconds)

    def reset(self) -> None:
        self.was_reset = True

    def wait_for_test(self) -> None:
        """No test waits: it is the one that asks for the next step."""

    async def until_told(self) -> None:
        await self.hold()

    async def hold(self) -> None:
        await _say(inf)


@coroutine
def _say(said: Said) -> Generator[Said, None, None]:
    yield said


class FaultDriver:
    """Serves requests of clients from the faults, one after the other."""

    def __init__(self, house: House) -> None:
        limits = house.config.limits
        self.house = house
        self._settings = ClientSettings(max_decoded_bytes=limits.answer_bytes, max_decoded_ratio=limits.decompress_ratio)
        self._visits: Counter[str] = Counter()

    def ask(self, client: str, model: str, *, stream: bool) -> Answer:
        """One question of a client of that dialect, and all that it gets."""
        path, body = request_body(client, model, stream=stream)
        memory = RequestMemory(self.house.memory)
        serving = self.house.enter(path, body, memory)
        drive = _Drive(serving, self._settings, self._visits, self.house.now)
        try:
            return drive.run()
        finally:
            serving.close(drive.now)
            memory.close()


class _Drive:
    def __init__(self, serving: Serving, settings: ClientSettings, visits: Counter[str], now: float) -> None:
        self.now = now
        self._serving = serving
        self._settings = settings
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
        talk = SaidTalk(asked, self._visits[asked.model])
        self._visits[asked.model] += 1
        self._framing = ResponseFraming(
            max_head_bytes=self._settings.max_head_bytes, max_fields=self._settings.max_header_fields
        )
        self._decoder: ContentDecoder | None = None
        self._first_byte_at = self.now + request.target.timeouts.first_byte
        self._total_at = self.now + request.target.timeouts.total
        serving.sending(self.now)
        script = cast("Coroutine[Said, None, None]", FAULTS[asked.model.partition(".")[0]](talk))
        try:
            while serving.state in _UPSTREAM_SPEAKS:
                try:
                    said = script.send(None)
                except StopIteration:
                    self._script_ended(talk)
                else:
                    self._received(said) if isinstance(said, bytes) else self._silent(said)
        finally:
            script.close()

    def _script_ended(self, talk: SaidTalk) -> None:
        if talk.was_reset:
            self._fail(UpstreamClosed("the connection to the upstream broke", code="upstream_reset"))
        elif talk.keep:
            self._silent(inf)
        elif self._framing.feed_eof():
            self._deliver(None)
        else:
            self._fail(UpstreamClosed("the upstream closed the connection", code="upstream_closed"))

    def _received(self, data: bytes) -> None:
        framing, failure = self._framing, None
        try:
            framing.feed(data)
        except UpstreamProtocol as broken:
            failure = broken
        if framing.has_head and self._serving.state is ServingState.SENDING:
            try:
                self._take_head()
            except UpstreamProtocol as unreadable:
                failure = unreadable
        if failure is not None:
            self._fail(failure)
        elif self._serving.state is ServingState.READING:
            self._deliver(None)

    def _take_head(self) -> None:
        framing, settings = self._framing, self._settings
        self._decoder = decoder_for(
            framing.headers.get("content-encoding", ""),
            max_bytes=settings.max_decoded_bytes,
            max_ratio=settings.max_decoded_ratio,
            step=PORTION,
        )
        hidden = ("content-encoding", "content-length") if self._decoder is not None else ()
        headers = {name: value for name, value in framing.headers.items() if name not in hidden}
        self._serving.head(framing.status, with_relative_wait(headers, time.time()), self.now)

    def _fail(self, failure: UpstreamError) -> None:
        failure.request_sent, failure.response_started = True, self._framing.started
        if self._serving.state is ServingState.SENDING:
            self._show(self._serving.failed(failure, self.now))
        else:
            self._deliver(failure)

    def _deliver(self, failure: UpstreamError | None) -> None:
        """What of the body has come, and its end behind it."""
        serving, pieces = self._serving, self._framing.pieces
        data = b"".join(pieces)
        pieces.clear()
        try:
            for portion in self._decoded(data):
                self._show(serving.data(portion, self.now))
                if serving.state is not ServingState.READING:
                    return
            if self._framing.complete and self._decoder is not None:
                self._decoder.finish()
        except UpstreamProtocol as undecodable:
            failure = undecodable
        if failure is not None or self._framing.complete:
            self._show(serving.end(failure, self.now))

    def _decoded(self, data: bytes) -> Generator[bytes, None, None]:
        if self._decoder is None:
            yield from (data[start : start + PORTION] for start in range(0, len(data), PORTION))
            return
        self._decoder.feed(data)
        while output := self._decoder.take():
            yield output

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
                self._fail(UpstreamTimeout("the upstream took too long", code=code))
            else:
                self._show(serving.tick(self.now))
        raise AssertionError("time does not pass")

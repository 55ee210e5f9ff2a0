"""Answers of the faulty upstream as `Serving` hears of them: the scripts write, and their bytes are read by the framing and the
decoder that the upstream client uses, both of which are pure.

What is heard follows from the fault, the dialect, whether a stream was asked for, who asks and how often before. It is found
out once and told to every request for which all of that is the same, as far as the request listens.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator, Iterator, Mapping
from math import inf
from types import coroutine
from typing import cast

import msgspec

from athena.errors import UpstreamClosed, UpstreamError, UpstreamProtocol
from athena.serving.network import ClientSettings
from athena.serving.retries import with_relative_wait
from athena.shells.upstream.encoding import ContentDecoder, decoder_for
from athena.shells.upstream.framing import ResponseFraming
from athena.shells.upstream.response import PORTION
from support.fault_scripts import FAULTS
from support.upstream_talk import Asked, Talk

Said = bytes | float
"""What a script does: bytes that it writes, or seconds of silence."""


class HeardHead(msgspec.Struct, frozen=True):
    """Status and headers of the answer."""

    status: int
    headers: Mapping[str, str]


class HeardEnd(msgspec.Struct, frozen=True):
    """Nothing more comes."""

    failure: UpstreamError | None = None


Heard = float | HeardHead | bytes | HeardEnd
"""Seconds of silence, the head, a part of the body as the upstream client hands it out, or the end."""


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


class HeardAnswers:
    """The answers of one fault after the other; those of the present one are remembered."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._fault = ""
        self._known: dict[object, _HeardAnswer] = {}

    def to(self, asked: Asked, number: int) -> Iterator[Heard]:
        """The answer to a request that was made so many times before."""
        fault = asked.model.partition(".")[0]
        if fault != self._fault:
            self._fault = fault
            self._known.clear()
        key = (asked.dialect, asked.stream, tuple(asked.headers.items()), number)
        answer = self._known.get(key)
        if answer is None:
            # The script sees nothing that is not in the key.
            talk = SaidTalk(asked.without_content(fault), number)
            answer = self._known[key] = _HeardAnswer(talk, self._settings)
        return iter(answer)


class _HeardAnswer:
    def __init__(self, talk: SaidTalk, settings: ClientSettings) -> None:
        self._talk = talk
        self._settings = settings
        self._framing = ResponseFraming(max_head_bytes=settings.max_head_bytes, max_fields=settings.max_header_fields)
        self._decoder: ContentDecoder | None = None
        self._has_head = False
        self._heard: list[Heard] = []
        self._more = self._listen()

    def __iter__(self) -> Iterator[Heard]:
        """All of it from its beginning; the script goes on when somebody wants to hear more than was heard before."""
        heard = self._heard
        yield from heard
        for one in self._more:
            heard.append(one)
            yield one

    def _listen(self) -> Generator[Heard, None, None]:
        talk = self._talk
        script = cast("Coroutine[Said, None, None]", FAULTS[talk.model](talk))
        try:
            while True:
                try:
                    said = script.send(None)
                except StopIteration:
                    break
                if isinstance(said, bytes):
                    yield from self._received(said)
                else:
                    yield said
        finally:
            script.close()
        if talk.was_reset:
            yield self._failed(UpstreamClosed("the connection to the upstream broke", code="upstream_reset"))
        elif talk.keep:
            yield inf
        elif self._framing.feed_eof():
            yield from self._body(None)
        else:
            yield self._failed(UpstreamClosed("the upstream closed the connection", code="upstream_closed"))

    def _received(self, data: bytes) -> Generator[Heard, None, None]:
        framing, failure = self._framing, None
        try:
            framing.feed(data)
        except UpstreamProtocol as broken:
            failure = broken
        if framing.has_head and not self._has_head:
            try:
                yield self._head()
            except UpstreamProtocol as unreadable:
                failure = unreadable
        if self._has_head:
            yield from self._body(failure)
        elif failure is not None:
            yield self._failed(failure)

    def _head(self) -> HeardHead:
        framing, settings = self._framing, self._settings
        self._decoder = decoder_for(
            framing.headers.get("content-encoding", ""),
            max_bytes=settings.max_decoded_bytes,
            max_ratio=settings.max_decoded_ratio,
            step=PORTION,
        )
        self._has_head = True
        hidden = ("content-encoding", "content-length") if self._decoder is not None else ()
        headers = {name: value for name, value in framing.headers.items() if name not in hidden}
        return HeardHead(framing.status, with_relative_wait(headers, time.time()))

    def _body(self, failure: UpstreamError | None) -> Generator[Heard, None, None]:
        """What of the body has come, and its end behind it."""
        framing, decoder = self._framing, self._decoder
        data = b"".join(framing.pieces)
        framing.pieces.clear()
        try:
            if decoder is None:
                yield from (data[start : start + PORTION] for start in range(0, len(data), PORTION))
            else:
                decoder.feed(data)
                while output := decoder.take():
                    yield output
                if framing.complete:
                    decoder.finish()
        except UpstreamProtocol as undecodable:
            failure = undecodable
        if failure is not None:
            yield self._failed(failure)
        elif framing.complete:
            yield HeardEnd()

    def _failed(self, failure: UpstreamError) -> HeardEnd:
        failure.request_sent, failure.response_started = True, self._framing.started
        return HeardEnd(failure)

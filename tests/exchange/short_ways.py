"""The same reads through several exchanges: one asks its short way first, one has a relay before it, and one takes the long way
only. Everything must be equal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from athena.answer_path import AnswerPath
from athena.dialects.openai_chat.decode_answer import ChatStreamDecoder
from athena.dialects.plain_reads import PlainSplice
from athena.exchange import Exchange, Options, Route, Step
from athena.formats.machine.stage import FormatOptions
from athena.model.limits import Limits
from athena.model.parts import Text
from athena.model.profile import Profile
from athena.model.request import Request, Tool, Turn
from athena.opaque import Envelope, OpaqueStore
from athena.shells.gateway.plain_relay import PlainRelay
from athena.wire.sse import Beginning
from support.raw_server import chunk

TOOL = Tool(name="get_weather", schema={"type": "object", "properties": {"city": {"type": "string"}}})


class Relayed:
    """An exchange with a relay before it, as the driver has it: nothing is asked of it before what was passed on is settled."""

    blocked = False

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.taken = 0
        self._splice: PlainSplice | None = None
        self._relay: PlainRelay | None = None
        self._written: list[bytes] = []
        self._passed: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> Step:
        """What leaves for this read."""
        if self._relay is not None:
            if data and self._relay.take(chunk(data)):
                self.taken += 1
                (written,) = self._written
                self._written.clear()
                size, output = written[:-2].split(b"\r\n", 1)
                assert int(size, 16) == len(output)
                assert written.endswith(b"\r\n")
                self._passed.append((data, output))
                return Step(None, output)
            assert not self._written
            self.settle()
        way = self.exchange.short_way
        passed = way(data) if way is not None else None
        step = self.exchange.upstream_data(data) if passed is None else Step(None, passed)
        splice = self.exchange.splice if self.exchange.short_way is not None else None
        if splice is not self._splice:
            self._splice, self._relay = splice, None
            if splice is not None:
                self._relay = PlainRelay(splice, lambda: 1.0, self._written.append, self, lambda: None)
        return step

    def settle(self) -> None:
        assert self._relay is not None
        strings, times, _, last = self._relay.settle()
        assert times == [1.0] * len(strings)
        if strings:
            assert self.exchange.spliced is not None
            _, record = self.exchange.spliced
            assert [(record.came(text), record.left(text)) for text in strings] == self._passed
            self.exchange.relayed(strings, last)
        self._passed.clear()

    def end(self) -> Step:
        if self._relay is not None:
            self.settle()
        return self.exchange.upstream_end()


class Pair:
    """Exchanges of one request, and how many reads took the short way in the first and passed the second by."""

    def __init__(
        self,
        upstream: str,
        client: str,
        *,
        watched: bool = True,
        profile: Profile = Profile(),  # noqa: B008
        limits: Limits = Limits(),  # noqa: B008
    ) -> None:
        new = partial(self._exchange, upstream, client, watched=watched, profile=profile, limits=limits)
        self.short = new()
        self.long = new()
        self._keep_long(self.long)
        self.taken = 0
        self.told = 0
        """Of how many of them the texts alone tell everything."""
        self.relayed = Relayed(new())

    @staticmethod
    def _keep_long(exchange: Exchange) -> None:
        """No record of its reads takes a short way, not even inside of a burst."""
        begin = exchange._open

        def opened(beginning: Beginning) -> AnswerPath:
            path = begin(beginning)
            path._streams = None
            if isinstance(path._decoder, ChatStreamDecoder):
                path._decoder._looks_for_arguments = False
            return path

        exchange._open = opened  # type: ignore[method-assign]

    def _exchange(self, upstream: str, client: str, *, watched: bool, profile: Profile, limits: Limits) -> Exchange:
        turn = Turn(role="user", parts=(Text(text="Hi"),))
        tools = (TOOL,) if watched else ()
        request = Request(
            dialect=client, model="m", stream=True, max_output=100, turns=(turn,), tools=tools, include_usage=True
        )
        route = Route(dialect=upstream, model="m", format=FormatOptions() if watched else None, profile=profile)
        options = Options(seed="s", created=1, envelope=Envelope(b"k" * 32), store=OpaqueStore(8), limits=limits)
        exchange = Exchange(request, route, options)
        exchange.upstream_head(200, {"content-type": "text/event-stream"})
        return exchange

    def feed(self, reads: Sequence[bytes]) -> None:
        """All reads, then the end; compared after each."""
        for data in reads:
            long = self.long.upstream_data(data)
            way = self.short.short_way
            output = way(data) if way is not None else None
            if output is not None:
                self.taken += 1
                assert (output, None, False) == (long.output, long.head, long.done), data
                assert long.events, data
                spliced = self.short.spliced
                if spliced is not None:
                    texts, record = spliced
                    assert (record.came(texts), record.left(texts)) == (data, output), texts
                    self.told += 1
            else:
                step = self.short.upstream_data(data)
                assert (step.output, step.head, step.done, step.again) == (long.output, long.head, long.done, long.again), data
                assert step.events == long.events, data
                burst = self.short.burst
                if burst is not None:
                    parts = [
                        (part, after) if isinstance(after, bytes) else (after.came(part), after.left(part))
                        for part, after in burst.parts
                    ]
                    assert b"".join(came for came, _ in parts) == data, burst.parts
                    assert b"".join(left for _, left in parts) == burst.output, burst.parts
                    self.told += 1
            step = self.relayed.feed(data)
            assert (step.output, step.head, step.done, step.again) == (long.output, long.head, long.done, long.again), data
        end = self.long.upstream_end()
        assert self.short.upstream_end() == end
        assert self.relayed.end() == end
        self._compare(self.relayed.exchange)
        self._compare(self.short)

    def _compare(self, short: Exchange) -> None:
        """What is known of the answer."""
        for name in ("outcome", "error", "usage", "losses", "bad_records", "text_calls", "echoes", "format_found", "origins"):
            assert getattr(short, name) == getattr(self.long, name), name
        first, second = short._options.store, self.long._options.store
        assert isinstance(first, OpaqueStore)
        assert isinstance(second, OpaqueStore)
        assert first._items == second._items


def frames(body: bytes) -> list[bytes]:
    """A stream as its events, one read each."""
    mark = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    pieces = body.split(mark)
    return [piece + mark for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def cut_at(reads: Sequence[bytes], place: int) -> list[bytes]:
    """The same reads with one more cut, at this byte of the whole."""
    cut: list[bytes] = []
    for read in reads:
        if 0 < place < len(read):
            cut += [read[:place], read[place:]]
        else:
            cut.append(read)
        place -= len(read)
    return cut

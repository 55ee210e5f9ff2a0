"""The way of an answer, upstream bytes to client bytes: decoder, text formats or prompted tools, restoring, encoder.

No status and no head: just the body. The exchange decides when a client sees it. Where upstream and client speak the same
dialect and nothing has to change, the upstream's records pass through, checked and framed anew.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from athena.calls.choice import ChoiceGuard
from athena.calls.pairing import Pairing
from athena.dialects import get_dialect
from athena.dialects.base import (
    AnswerDecoder,
    AnswerEncoder,
    AnswerLosses,
    DecodeContext,
    Dialect,
    EncodeContext,
    StreamDecoder,
)
from athena.formats.bodies.native_arguments import ArgumentMender
from athena.formats.machine.stage import FormatOptions, FormatStage
from athena.model.events import Error, Event, TextDelta, is_failure, is_terminal
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.profile import Profile
from athena.model.request import Loss, Request, Tool
from athena.opaque import Envelope, OpaqueStore
from athena.prepare import Prepared
from athena.prompted.options import PromptedOptions
from athena.prompted.stage import Correction, PromptedStage
from athena.provenance import echo_guard
from athena.restore import Restore
from athena.wire.sse import Record, encode_event


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes and how its answer is read."""

    dialect: str
    model: str
    profile: Profile = Profile()
    strict: bool = False
    format: FormatOptions | None = None
    """How to look for calls in the model's text; None: not at all."""
    prompted: PromptedOptions | None = None
    """The model has no tools: they are taught in the prompt, and calls are read from its text."""
    pairing: Pairing = "strict"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell hands in: time, seed, keys and bounds."""

    seed: str = ""
    created: int = 0
    envelope: Envelope | None = None
    store: OpaqueStore | None = None
    tenant: str = ""
    limits: Limits = DEFAULT_LIMITS
    input_tokens: int = 0
    stream_error_stop: bool = False
    hide_auth_errors: bool = False
    """The gateway has keys of its own: an upstream's 401 or 403 is then no fault of the client."""
    array: bool = False
    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    """Chat clients: the field or fields that carry reasoning text of an upstream of another dialect."""
    passthrough: bool = True
    pass_junk: bool = False
    """Hand on records that are not JSON, to clients of the upstream's own dialect."""
    upstream: str = ""
    """The upstream's name in the configuration, for messages about it."""
    secrets: tuple[str, ...] = ()
    """What no error may repeat, no matter where it came from."""
    retry_after_max: float = 120.0
    """The longest wait passed on: SDKs obey it without a bound of their own."""


class AnswerPath:
    """Upstream bytes to client bytes: decoder, text formats, restoring, encoder. No head, no status: just the body."""

    def __init__(
        self,
        request: Request,
        route: Route,
        options: Options,
        *,
        prepared: Prepared | None = None,
        upstream_stream: bool,
        correction: Correction | None = None,
        visible: Callable[[Error], Error] = lambda error: error,
    ) -> None:
        client, upstream = get_dialect(request.dialect), get_dialect(route.dialect)
        same = client.name == upstream.name
        self._client: Dialect = client
        self._restore = Restore(
            names=prepared.names if prepared else None,
            custom=prepared.custom if prepared else None,
            stops=prepared.stops if prepared else (),
            id_style=client.id_style,
            native_families=_native_families(client, route.profile, options.envelope) if same else (client.family,),
            sign_thinking=client.signs_thinking and not same,
            signs_calls=client.signs_calls,
            custom_calls=client.custom_calls,
            envelope=options.envelope,
            store=options.store,
            tenant=options.tenant,
            seed=options.seed,
            native_ends=same,
            history=request.turns,
            keeps_text=route.profile.reasoning_replay != "never",
        )
        self.prompted = _prompted_stage(request, route, options, prepared, correction)
        # The model knows the tools by the names it was given; `restore` turns them back.
        declared = prepared.request.tools if prepared is not None else request.tools
        self._choice = ChoiceGuard.of(request) if route.prompted is None else None
        """Prompted tools keep the choice by themselves."""
        forbidden = request.tool_choice is not None and request.tool_choice.mode == "none"
        # Where calls are forbidden, their markup is text.
        reads_text = route.format is not None and route.prompted is None and bool(request.tools) and not forbidden
        self.formats: FormatStage | None = (
            _format_stage(request, route.format, declared, options, prepared)
            if reads_text and route.format is not None
            else None
        )
        clean = (
            options.passthrough
            and same
            and route.profile.clean
            and self._restore.idle
            and self.formats is None
            and self.prompted is None
            and self._choice is None
            and upstream_stream == request.stream
            and not options.array
            and not (request.stream and client.usage_on_request and not request.include_usage)
        )
        self._losses = AnswerLosses()
        self._visible = visible
        self._accepted: list[Record] | None = [] if clean else None
        self._junk: list[Record] | None = [] if options.pass_junk and same and request.stream and upstream_stream else None
        self._passed: tuple[bytes, bytes] | None = None
        decode_context = DecodeContext(
            profile=route.profile,
            limits=options.limits,
            seed=options.seed,
            choices=request.n,
            keep_extras=same and not clean,
            accepted=self._accepted,
            junk=self._junk,
            losses=None if clean else self._losses,
            max_output=(prepared.request if prepared is not None else request).max_output,
            mend=None if clean or not _mends(route) else ArgumentMender,
        )
        self._decoder: AnswerDecoder = upstream.decoder(decode_context, stream=upstream_stream)
        self._encode_context = EncodeContext(
            request=request,
            seed=options.seed,
            created=options.created,
            envelope=options.envelope,
            same_dialect=same,
            input_tokens=options.input_tokens,
            stream_error_stop=options.stream_error_stop,
            reasoning_fields=options.reasoning_fields,
            array=options.array,
            losses=self._losses,
        )
        self._encoder: AnswerEncoder = client.encoder(self._encode_context, stream=request.stream)
        self._ended = False
        self._decode, self._encode = self._decoder.feed, self._encoder.feed
        self._direct = self._accepted is None and self._junk is None and self.prompted is None
        """No stage stands between decoder and encoder but those that may let text pass."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What of the answer so far the client does not get."""
        return self._losses.found

    @property
    def finished(self) -> bool:
        """Has the upstream said why it ended?"""
        return self._decoder.finished

    @property
    def bad_records(self) -> int:
        """Records that were not JSON and were dropped."""
        return self._decoder.bad_records if isinstance(self._decoder, StreamDecoder) else 0

    def tick(self, now: float) -> tuple[list[Event], bytes]:
        """Time passed: prompted tools may have waited long enough."""
        if self._ended or self.prompted is None:
            return [], b""
        return self._write(self._restore.feed(self.prompted.tick(now)))

    def feed(self, data: bytes, now: float = 0.0) -> tuple[list[Event], bytes]:
        """The events these bytes brought, and the bytes for the client."""
        if self._ended:
            return [], b""
        events = self._decode(data)
        if len(events) == 1 and self._direct and self._restore.lets_text_pass:
            only = events[0]
            if type(only) is TextDelta and (self.formats is None or self.formats.is_plain(only)):
                return events, self._encode(events)
        if self._accepted is not None:
            return self._pass(events)
        if self.formats is not None and events:
            events = self.formats.feed(events)
        elif self.prompted is not None:
            events = self.prompted.feed(events, now)
        return self._write(self._chosen(self._restore.feed(events)))

    def close(self) -> tuple[list[Event], bytes]:
        """Tell the stages that the upstream's body ended, and return what they still held back."""
        if self._ended:
            return [], b""
        if self._accepted is not None:
            return self._pass(self._decoder.close(), closing=True)
        return self._write(self._read(self._decoder.close()))

    def fail(self, error: Error) -> tuple[list[Event], bytes]:
        """The upstream ended early: open parts stay open, and the client gets an error."""
        if self._ended:
            return [], b""
        if self._decoder.finished:
            # Everything was said before it broke: only the end itself is missing, and it is not needed.
            return self.close()
        if self._accepted is not None:
            return self._pass([error], closing=True)
        return self._write(self._read([error]))

    def broken(self, error: Error) -> bytes:
        """The frame that tells a client of a stream without any event that it failed."""
        self._ended = True
        return self._encoder.feed([error])

    def _read(self, events: list[Event]) -> list[Event]:
        if self.formats is not None and events:
            events = self.formats.feed(events)
        elif self.prompted is not None:
            events = self.prompted.feed(events)
        return self._chosen(self._restore.feed(events))

    def _chosen(self, events: list[Event]) -> list[Event]:
        """As far as the answer keeps the request's tool choice."""
        guard = self._choice
        if guard is None or not events:
            return events
        before = guard.left_out
        events = guard.feed(events)
        if guard.left_out > before:
            self._losses.drop("tool_calls", "the request allows one call, and the model made more")
        return events

    def _write(self, events: list[Event]) -> tuple[list[Event], bytes]:
        if not events:
            return events, self._junk_frames() if self._junk else b""
        self._note_end(events)
        output = self._encoder.feed(events)
        return events, output if not self._junk else self._junk_frames() + output

    def _note_end(self, events: list[Event]) -> Event:
        """Note the end, if this is it, in the form in which the client may see it."""
        last = events[-1]
        if type(last) is TextDelta:
            return last
        if is_failure(last):
            last = events[-1] = self._visible(last)
        self._ended = is_terminal(last)
        return last

    def _junk_frames(self) -> bytes:
        assert self._junk is not None
        frames = [encode_event(payload, name) for name, payload in self._junk]
        self._junk.clear()
        return b"".join(frames)

    def _pass(self, events: list[Event], *, closing: bool = False) -> tuple[list[Event], bytes]:
        """The records themselves, in clean frames: what else an upstream puts around them, clients may not survive."""
        records = self._accepted
        assert records is not None
        end = self._client.stream_end
        if not end and records and records[-1][1].startswith(b"[DONE]"):
            records.pop()
        terminal = self._note_end(events) if events else None
        failed = is_failure(terminal)
        if not self._encode_context.request.stream:
            return events, records[-1][1] if records and self._ended and not failed else b""
        if records:
            self._passed = (self._passed[0] if self._passed else records[0][1], records[-1][1])
        frames = [self._frame(name, payload) for name, payload in records]
        records.clear()
        if self._junk:
            frames.insert(0, self._junk_frames())
        if failed:
            assert isinstance(terminal, Error)
            context = msgspec.structs.replace(self._encode_context, passed=self._passed)
            frames.append(self._client.encoder(context, stream=True).feed([terminal]))
        elif closing and self._ended and (not frames or frames[-1][:20] != end[:20]):
            frames.append(end)
        return events, b"".join(frames)

    def _frame(self, name: str, payload: bytes) -> bytes:
        if payload.startswith(b"[DONE]"):
            return self._client.stream_end
        if b"\n" in payload:
            payload = payload.replace(b"\n", b" ")
        if not self._client.named_events:
            return b"data: %b\n\n" % payload
        if not name or b'"type":"%b"' % name.encode() not in payload:
            name, payload = _agreed(name, payload)
        return encode_event(payload, name)


class _Typed(msgspec.Struct):
    """What a record says it is."""

    type: str | msgspec.UnsetType = msgspec.UNSET


_type_of = msgspec.json.Decoder(_Typed).decode


def _agreed(name: str, payload: bytes) -> tuple[str, bytes]:
    """The event's name and its record, saying the same: some readers go by the one and some by the other."""
    try:
        kind = _type_of(payload).type
    except msgspec.DecodeError:
        return name, payload
    if kind is not msgspec.UNSET:
        # A name is one line: what follows a line break in it would be read as a line of the stream.
        return " ".join(kind.splitlines()), payload
    if not name:
        return "", payload
    members = payload.strip()[1:]
    separator = b"" if members.lstrip().startswith(b"}") else b","
    return name, b'{"type":%b%b%b' % (msgspec.json.encode(name), separator, members)


def _mends(route: Route) -> bool:
    """Are the slips of native arguments put right? At the levels at which those of calls in text are."""
    if route.prompted is not None:
        return route.prompted.repair != "off"
    return route.format is None or route.format.policies.repair != "off"


def _native_families(client: Dialect, profile: Profile, envelope: Envelope | None) -> tuple[str, ...] | None:
    """Whose state a client of the upstream's own dialect gets as it is; None: everybody's.

    State that a look-alike minted is sealed where the dialect itself does not say who did, or it would pass for the real
    family's after a change of model and be refused there.
    """
    known = not client.family or profile.family == client.family
    return None if known or envelope is None else (client.family,)


def _format_stage(
    request: Request, reading: FormatOptions, tools: tuple[Tool, ...], options: Options, prepared: Prepared | None
) -> FormatStage:
    guard = None
    if reading.policies.echo != "allow":
        named = reading.recognizer().named
        guard = echo_guard(
            request,
            tools=tools,
            names=prepared.names if prepared is not None else None,
            repair=reading.policies.repair,
            formats=(named,) if named is not None and (reading.tokens or reading.declared is not None) else (),
        )
    return FormatStage(reading, tools=tools, limits=options.limits, seed=options.seed, guard=guard)


def _prompted_stage(
    request: Request, route: Route, options: Options, prepared: Prepared | None, correction: Correction | None
) -> PromptedStage | None:
    rendered = prepared.rendered if prepared is not None else None
    if route.prompted is None or rendered is None or rendered.plan is None:
        return None
    prompted = route.prompted if correction is None else msgspec.structs.replace(route.prompted, reask=False)
    guard = None
    if prompted.echo != "allow" and prepared is not None:
        # The client's request is searched, not the prompt that teaches the tools: what that holds is ours.
        guard = echo_guard(request, tools=rendered.plan.tools, names=prepared.names, repair=prompted.repair)
    return PromptedStage(
        prompted,
        rendered.plan,
        choices=request.n,
        limits=options.limits,
        seed=options.seed,
        spent=correction.usage if correction is not None else None,
        input_tokens=options.input_tokens,
        guard=guard,
    )

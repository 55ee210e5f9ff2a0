"""The whole path of one request and its answer, without IO: `design.md` 2 as code.

A shell (gateway, SDK transport, replay, test) moves the bytes and calls, in this order:

    exchange = Exchange(request, route, ...)     the client's request, decoded, and where it goes
    exchange.call                                what to send upstream
    exchange.upstream_head(status, headers)      the upstream's answer begins
    exchange.upstream_data(data)                 ... goes on; each call may return bytes for the client
    exchange.upstream_end(failure)               ... ends, well or not

The client's own head is decided late: `Step.head` is set once, with the first event that decides success or failure, so an
early failure still has an honest HTTP status. Until then a shell may throw the exchange away and try another route. A shell
that can wait no longer calls `commit()` and sends keep-alives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from athena.calls.pairing import Pairing
from athena.dialects import get_dialect
from athena.dialects.base import AnswerDecoder, AnswerEncoder, DecodeContext, Dialect, EncodeContext, Target, kind_of_status
from athena.errors import AthenaError, UsageError
from athena.formats.stage import FormatOptions, FormatStage
from athena.model.events import Done, Error, Event, TextDelta, Usage, error_event
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.profile import Profile
from athena.model.request import Loss, Request
from athena.opaque import Envelope, OpaqueStore
from athena.prepare import Prepared, prepare
from athena.prompted.options import PromptedOptions
from athena.prompted.render import correction_turns, merged_turns
from athena.prompted.stage import Correction, PromptedStage
from athena.restore import Restore, is_meaningful


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
    """The gateway has keys of its own: an upstream's 401 or 403 is then no fault of the client (`design.md` 3.12)."""
    array: bool = False
    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    """Chat clients: the field or fields that carry reasoning text of an upstream of another dialect."""
    passthrough: bool = True


class UpstreamCall(msgspec.Struct, frozen=True):
    """What to POST upstream, below the upstream's base URL."""

    path: str
    headers: dict[str, str]
    body: bytes


class Head(msgspec.Struct, frozen=True):
    """The client's status line and headers."""

    status: int
    headers: dict[str, str]


class Step(msgspec.Struct, frozen=True):
    """What one call into the exchange brought for the client."""

    head: Head | None = None
    output: bytes = b""
    done: bool = False
    """The answer is complete: close the client's side and drop the upstream."""
    events: tuple[Event, ...] = ()
    again: UpstreamCall | None = None
    """Nothing was shown and the model is to be asked once more: drop the upstream's answer and send this."""


NOTHING = Step()


class Exchange:
    """One request and its answer."""

    def __init__(self, request: Request, route: Route, options: Options | None = None) -> None:
        options = options or Options()
        self.request = request
        self.route = route
        self._options = options
        self._client = get_dialect(request.dialect)
        self._upstream = get_dialect(route.dialect)
        target = Target(route.model, route.profile, route.strict)
        self.prepared: Prepared = prepare(
            request,
            target,
            self._client,
            self._upstream,
            envelope=options.envelope,
            store=options.store,
            tenant=options.tenant,
            pairing=route.pairing,
            prompted=route.prompted,
        )
        encoded = self._upstream.encode_request(self.prepared.request, target)
        self.losses: tuple[Loss, ...] = self.prepared.losses + encoded.losses
        self.call = UpstreamCall(encoded.path, encoded.headers, msgspec.json.encode(encoded.body))
        self._target = target
        self._correction: Correction | None = None
        self._path: AnswerPath | None = None
        self._failure: Error | None = None
        self._failed_body = bytearray()
        self._failed_status = 0
        self._failed_headers: Mapping[str, str] = {}
        self._held: list[bytes] = []
        self._head_sent = False
        self.done = False
        self.outcome: Literal["", "ok", "error"] = ""
        self.error: Error | None = None
        self.usage: Usage | None = None

    # -- the upstream speaks -----------------------------------------------------------------------------------------------

    def upstream_head(self, status: int, headers: Mapping[str, str]) -> Step:
        """The upstream's status and headers (lower-case names)."""
        if self._path is not None or self._failed_status:
            raise UsageError("upstream_head() twice")
        if status >= 300:
            self._failed_status, self._failed_headers = status, headers
            return NOTHING
        streamed = self.request.stream
        kind = headers.get("content-type", "")
        if streamed and "json" in kind and "stream" not in kind and "ndjson" not in kind and not self._options.array:
            # Asked for a stream, answered whole: an error body, or a server that does not stream with tools.
            streamed = False
        self._path = AnswerPath(
            self.request,
            self.route,
            self._options,
            prepared=self.prepared,
            upstream_stream=streamed,
            correction=self._correction,
        )
        return NOTHING

    def upstream_data(self, data: bytes, now: float = 0.0) -> Step:
        """The next bytes of the upstream's body; `now` is the shell's clock, for `deadline`."""
        if self.done:
            return NOTHING
        if self._failed_status:
            room = 64 * 1024 - len(self._failed_body)
            self._failed_body += data[: max(room, 0)]
            return NOTHING
        if self._path is None:
            raise UsageError("upstream_data() before upstream_head()")
        return self._show(*self._path.feed(data, now))

    @property
    def deadline(self) -> float | None:
        """When `tick` is to be called, on the clock of `upstream_data`; None: never."""
        stage = self._path.prompted if self._path is not None else None
        return stage.deadline if stage is not None else None

    def tick(self, now: float) -> Step:
        """Time passed without the upstream saying anything."""
        if self.done or self._path is None:
            return NOTHING
        return self._show(*self._path.tick(now))

    def upstream_end(self, failure: AthenaError | None = None) -> Step:
        """The upstream's body ended; `failure` says why when it did not end by itself."""
        if self.done:
            return NOTHING
        if self._failed_status:
            error = self._upstream.decode_error(self._failed_status, self._failed_headers, bytes(self._failed_body))
            return self._fail(error)
        if self._path is None:
            return self._fail(error_event(failure) if failure else Error("the upstream gave no answer", code="upstream_closed"))
        if failure is not None:
            return self._show(*self._path.fail(error_event(failure)))
        return self._show(*self._path.close())

    def commit(self) -> Step:
        """The client can wait no longer: send the head and what is there."""
        if self._head_sent or self.done or not self.request.stream:
            return NOTHING
        return Step(self._take_head(), self._drain())

    @property
    def prompted(self) -> PromptedStage | None:
        """Prompted tools: what was found in the answer so far; None when none are taught."""
        return self._path.prompted if self._path is not None else None

    @property
    def text_calls(self) -> int:
        """Calls that were found in the model's text."""
        if self.prompted is not None:
            return self.prompted.calls
        stage = self._path.formats if self._path is not None else None
        return stage.counts.calls if stage is not None else 0

    @property
    def format_found(self) -> str:
        """The text format or formats in which calls were found."""
        if self.prompted is not None:
            return f"prompted_{self.prompted.style}" if self.prompted.calls else ""
        stage = self._path.formats if self._path is not None else None
        return "+".join(stage.formats) if stage is not None else ""

    @property
    def notes(self) -> list[Error]:
        """What happened in the text without ending the answer."""
        if self.prompted is not None:
            return self.prompted.notes
        stage = self._path.formats if self._path is not None else None
        return stage.notes if stage is not None else []

    def keep_alive(self) -> bytes:
        """Bytes that keep a committed stream open."""
        return self._client.keep_alive() if self.request.stream else b""

    # -- what the client sees ----------------------------------------------------------------------------------------------

    def _ask_again(self, correction: Correction) -> Step:
        """The model's answer was unusable and nobody has seen it: explain, and let it answer once more."""
        turns = (*self.prepared.request.turns, *correction_turns(correction.answer, correction.reason))
        request = msgspec.structs.replace(self.prepared.request, turns=merged_turns(turns))
        encoded = self._upstream.encode_request(request, self._target)
        self.call = UpstreamCall(encoded.path, encoded.headers, msgspec.json.encode(encoded.body))
        self.losses += (Loss("tools", f"asked once more: {correction.reason}", "repaired"),)
        self._correction, self._path = correction, None
        self._held.clear()
        return Step(again=self.call)

    def _show(self, events: list[Event], output: bytes) -> Step:
        stage = self._path.prompted if self._path is not None else None
        if stage is not None and stage.correction is not None and self._correction is None:
            return self._ask_again(stage.correction)
        terminal = events[-1] if events else None
        ended = isinstance(terminal, Done) and terminal.last
        failed = isinstance(terminal, Error) and terminal.fatal
        if failed:
            assert isinstance(terminal, Error)
            terminal = self._visible(terminal)
            self.outcome, self.error = "error", terminal
        if ended:
            assert isinstance(terminal, Done)
            self.outcome, self.usage = "ok", terminal.usage
        self.done = ended or failed
        if failed and (not self._head_sent or not self.request.stream):
            assert isinstance(terminal, Error)
            return self._fail(terminal, events)
        if self.request.stream and not self._head_sent and not any(map(is_meaningful, events)):
            self._held.append(output)
            return Step(events=tuple(events)) if events else NOTHING
        if not self.request.stream and not ended:
            return Step(events=tuple(events)) if events else NOTHING
        head = None if self._head_sent else self._take_head()
        if self._held:
            output = self._drain() + output
        return Step(head, output, self.done, tuple(events))

    def _fail(self, error: Error, events: list[Event] | None = None) -> Step:
        """An error before anything was shown: an HTTP error in the client's dialect."""
        error = self._visible(error)
        self.done, self.outcome, self.error = True, "error", error
        self._held.clear()
        self._head_sent = True
        answer = self._client.encode_error(error, self._options.seed)
        headers = {"content-type": "application/json", **answer.headers}
        return Step(Head(answer.status, headers), answer.body, True, tuple(events or (error,)))

    def _visible(self, error: Error) -> Error:
        """An upstream that refused the gateway's own key is no fault of the client's key."""
        if self._options.hide_auth_errors and error.status in (401, 403):
            return Error(
                "the upstream refused the gateway's credentials; the operator has to mend the upstream's api_key",
                kind=kind_of_status(502),
                code="upstream_auth",
                status=502,
                fatal=error.fatal,
            )
        return error

    def _take_head(self) -> Head:
        self._head_sent = True
        if self.prompted is not None:
            self.prompted.forbid_reask()
        headers = {"content-type": self._client.stream_type if self.request.stream else "application/json"}
        if self.request.stream:
            headers["cache-control"] = "no-cache"
            headers["x-accel-buffering"] = "no"
        return Head(200, headers)

    def _drain(self) -> bytes:
        held = b"".join(self._held)
        self._held.clear()
        return held


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
        )
        self.prompted = _prompted_stage(request, route, options, prepared, correction)
        reads_text = route.format is not None and route.prompted is None and bool(request.tools)
        self.formats: FormatStage | None = (
            FormatStage(route.format, tools=request.tools, limits=options.limits, seed=options.seed)
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
            and upstream_stream == request.stream
        )
        decode_context = DecodeContext(
            profile=route.profile, limits=options.limits, seed=options.seed, keep_extras=same and not clean
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
        )
        self._encoder: AnswerEncoder = client.encoder(self._encode_context, stream=request.stream)
        self._raw = RawFrames(stream=request.stream) if clean else None
        self._ended = False

    @property
    def passes_through(self) -> bool:
        """Are the upstream's bytes handed on untouched?"""
        return self._raw is not None

    def tick(self, now: float) -> tuple[list[Event], bytes]:
        """Time passed: prompted tools may have waited long enough."""
        if self._ended or self.prompted is None:
            return [], b""
        return self._write(self._restore.feed(self.prompted.tick(now)))

    def feed(self, data: bytes, now: float = 0.0) -> tuple[list[Event], bytes]:
        """The events these bytes brought, and the bytes for the client."""
        if self._ended:
            return [], b""
        events = self._decoder.feed(data)
        if self._raw is not None:
            return self._pass(events, data)
        if self.formats is not None and events:
            events = self.formats.feed(events)
        elif self.prompted is not None:
            events = self.prompted.feed(events, now)
        return self._write(self._restore.feed(events))

    def close(self) -> tuple[list[Event], bytes]:
        """The upstream's body ended."""
        if self._ended:
            return [], b""
        if self._raw is not None:
            return self._pass(self._decoder.close(), b"", closing=True)
        return self._write(self._read(self._decoder.close()))

    def fail(self, error: Error) -> tuple[list[Event], bytes]:
        """The upstream broke off: whatever is open stays open, and the client is told."""
        if self._ended:
            return [], b""
        if self._raw is not None:
            return self._pass([error], b"", closing=True)
        return self._write(self._read([error]))

    def _read(self, events: list[Event]) -> list[Event]:
        if self.formats is not None and events:
            events = self.formats.feed(events)
        elif self.prompted is not None:
            events = self.prompted.feed(events)
        return self._restore.feed(events)

    def _write(self, events: list[Event]) -> tuple[list[Event], bytes]:
        if not events:
            return events, b""
        self._ended = type(events[-1]) is not TextDelta and _is_terminal(events)
        return events, self._encoder.feed(events)

    def _pass(self, events: list[Event], data: bytes, *, closing: bool = False) -> tuple[list[Event], bytes]:
        assert self._raw is not None
        output = self._raw.feed(data)
        self._ended = self._ended or _is_terminal(events)
        terminal = events[-1] if events else None
        if isinstance(terminal, Error) and terminal.fatal and (closing or not output):
            # The upstream did not say it itself: the client must still learn that the answer is not whole.
            output += self._client.encoder(self._encode_context, stream=True).feed([terminal])
        elif closing or self._ended:
            output += self._raw.close()
        return events, output


def _native_families(client: Dialect, profile: Profile, envelope: Envelope | None) -> tuple[str, ...] | None:
    """Whose state a client of the upstream's own dialect gets as it is; None: everybody's.

    State that a look-alike minted is sealed where the dialect itself does not say who did, or it would pass for the real
    family's after a change of model and be refused there.
    """
    known = not client.family or profile.family == client.family
    return None if known or envelope is None else (client.family,)


def _prompted_stage(
    request: Request, route: Route, options: Options, prepared: Prepared | None, correction: Correction | None
) -> PromptedStage | None:
    rendered = prepared.rendered if prepared is not None else None
    if route.prompted is None or rendered is None or rendered.plan is None:
        return None
    prompted = route.prompted if correction is None else msgspec.structs.replace(route.prompted, reask=False)
    return PromptedStage(
        prompted,
        rendered.plan,
        choices=request.n,
        limits=options.limits,
        seed=options.seed,
        spent=correction.usage if correction is not None else None,
        input_tokens=options.input_tokens,
    )


def _is_terminal(events: list[Event]) -> bool:
    last = events[-1] if events else None
    return (isinstance(last, Done) and last.last) or (isinstance(last, Error) and last.fatal)


class RawFrames:
    """Upstream bytes cut at the ends of events, so that what is appended after a break never lands inside one."""

    __slots__ = ("_pending", "_scanned", "_stream")

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream
        self._pending = bytearray()
        self._scanned = 0

    def feed(self, data: bytes) -> bytes:
        """The bytes up to the last complete event; a whole answer is held until its end."""
        if self._stream and not self._pending and data.endswith(b"\n\n"):
            return data
        pending = self._pending
        pending += data
        if not self._stream:
            return b""
        start = max(0, self._scanned - 3)
        end = max(pending.rfind(mark, start) + len(mark) for mark in (b"\n\n", b"\r\n\r\n", b"\r\r"))
        if end < start + 2:
            self._scanned = len(pending)
            return b""
        shown = bytes(pending[:end])
        del pending[:end]
        self._scanned = len(pending)
        return shown

    def close(self) -> bytes:
        """What is left when the answer ended well; an event without its blank line gets one."""
        rest = bytes(self._pending)
        self._pending.clear()
        if not self._stream or not rest.strip():
            return b"" if self._stream else rest
        return rest + b"\n\n"


def warnings_header(losses: tuple[Loss, ...], limit: int = 20) -> str:
    """The losses as one header value: path and what was done, no values of the client."""
    shown = [f"{loss.path or 'request'} {loss.action}: {loss.reason}" for loss in losses[:limit]]
    if len(losses) > limit:
        shown.append(f"and {len(losses) - limit} more")
    return "; ".join(shown).encode("ascii", "replace").decode()


def decode_body(dialect: str, body: Mapping[str, Any], **url: Any) -> Request:
    """A client's body as a Request; `model` and `stream` where the URL says them."""
    return get_dialect(dialect).decode_request(body, **url)

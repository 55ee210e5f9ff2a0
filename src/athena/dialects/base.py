"""The shape every dialect has, and what they share: the loop of a streamed decoder and the table of errors.

A dialect is a package `dialects/<name>/` whose `__init__` holds one constant `DIALECT`. It knows its own wire form and the
neutral model, nothing else: no other dialect, no text format, no vendor's name (a vendor's quirks arrive as a `Profile`).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from athena.calls.names import NameRule
from athena.calls.survey import ALL
from athena.calls.tracker import Mender
from athena.dialects.plain_reads import PLAIN_BYTES, EachRecord, PlainFrame, PlainReader, PlainReads, PlainShape
from athena.errors import AthenaError, ErrorKind, UpstreamError, UsageError
from athena.model.events import Done, Error, Event, TextDelta, ThinkingDelta, Usage, error_event, is_failure
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.profile import IdStyle, Profile
from athena.model.request import Loss, Request, Tool, by_weight
from athena.opaque import Envelope
from athena.wire.fragments import Recall
from athena.wire.sse import SseDecoder, WireRecord
from athena.wire.surrogates import without_lone_surrogates


class EncodeTarget(msgspec.Struct, frozen=True):
    """The upstream, model and profile that a request is written for."""

    model: str
    profile: Profile = Profile()
    strict: bool = False
    """Refuse what cannot be represented instead of dropping it with a warning."""


class Encoded(msgspec.Struct, frozen=True):
    """A request in the target's dialect: what to POST, to which path below the base URL, and what it lost."""

    body: dict[str, Any]
    path: str
    headers: dict[str, str] = {}
    losses: tuple[Loss, ...] = ()


_CONVERSATION = ("messages", "contents", "input")


def conversation_last(body: dict[str, Any]) -> dict[str, Any]:
    """The body with its conversation after everything else.

    So the bytes of one turn are the beginning of those of the next: the tools stand before what grows.
    """
    name = next((name for name in _CONVERSATION if name in body), None)
    if name is None:
        return body
    return {**{key: value for key, value in body.items() if key != name}, name: body[name]}


def searches_web(tool: Tool) -> bool:
    """Is this a hosted web search, by whatever name a dialect has for it?"""
    word = (tool.hosted or "").lower().replace("_", "")
    return tool.kind == "hosted" and word.startswith(("websearch", "googlesearch"))


_EMPTY: tuple[object, ...] = ([], {}, "")


class AnswerLosses:
    """What of an answer its client does not get: noted by the decoder and the encoder of one exchange, reported once each.

    Only what stands in few places is looked for. Nothing is searched in the pieces of text and arguments that streams are made
    of.
    """

    __slots__ = ("_found",)

    _MOST = 100

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Loss] = {}

    def drop(self, path: str, reason: str, *, minor: bool = False) -> None:
        """Report a part of the answer that the client's dialect cannot hold."""
        self._note(Loss(f"answer.{path}", reason, minor=minor))

    def emulate(self, path: str, reason: str) -> None:
        """Something is said in another way."""
        self._note(Loss(f"answer.{path}", reason, "emulated"))

    def unknown(self, value: object, known: Collection[str], path: str = "") -> None:
        """The unread fields of an object. They mean something to the upstream's own clients only."""
        if isinstance(value, dict):
            for key, item in value.items():
                if key not in known and item is not None and item not in _EMPTY:
                    self.drop(f"{path}.{key}" if path else str(key), "a field that only the upstream's dialect has", minor=True)

    def _note(self, loss: Loss) -> None:
        if len(self._found) < self._MOST:
            self._found.setdefault((loss.path, loss.reason), loss)

    @property
    def found(self) -> tuple[Loss, ...]:
        """All of them, the most important first."""
        return by_weight(self._found.values()) if self._found else ()


class DecodeContext(msgspec.Struct, frozen=True):
    """What a decoder of answers needs to know about the exchange."""

    profile: Profile = Profile()
    limits: Limits = DEFAULT_LIMITS
    seed: str = ""
    """Makes synthesised ids differ between answers and stay equal for the same answer."""
    choices: int = 0
    """How many choices were asked for; others that come besides the first are passed over. 0: not known."""
    keep_extras: bool = False
    """Emit `Extra` events: the client speaks the same dialect."""
    accepted: list[WireRecord] | None = None
    """Where to put each record that was read and did not break the answer, for a client that gets them untouched. A whole
    answer is one record."""
    junk: list[WireRecord] | None = None
    """Where to put records that are not JSON, for a client that asked to see them."""
    losses: AnswerLosses | None = None
    """Where to note what no event carries; None where the upstream's records pass untouched."""
    max_output: int | None = None
    """How many tokens the answer was allowed."""
    mend: Callable[[], Mender] | None = None
    """Puts the arguments of calls right as they stream; None: they stay as they are."""


class EncodeContext(msgspec.Struct, frozen=True):
    """What an encoder of answers needs to know about the exchange."""

    request: Request
    """The client's own request, before any rewriting: model name, include_usage and echoed fields come from it."""
    seed: str = ""
    """Source of the ids the encoder has to make: equal seeds give equal bytes."""
    created: int = 0
    """Unix time of the exchange, handed in by the shell."""
    envelope: Envelope | None = None
    same_dialect: bool = False
    """The upstream speaks this dialect too: its ids, extras and native reasoning state go out as they are."""
    input_tokens: int = 0
    """Estimate to show until the upstream's own count is known."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    """Chat: the field or fields that carry reasoning text."""
    stream_error_stop: bool = False
    """Anthropic: a `message_stop` after an error event."""
    array: bool = False
    """Gemini: the stream is one JSON array, because the client did not ask for alt=sse."""
    losses: AnswerLosses = msgspec.field(default_factory=AnswerLosses)
    """Where to note what the client's dialect has no place for."""
    passed: tuple[bytes, bytes] | None = None
    """The first and the last record that already went out untouched: what is written now follows them."""


class AnswerDecoder(Protocol):
    """Upstream bytes to events. Never raises on any input; after a terminal event it returns nothing more."""

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]:
        """The upstream's body ended. Returns the terminal event if there was none. Idempotent."""
        ...

    @property
    def finished(self) -> bool:
        """Has the upstream said why it ended, so that only the end itself is missing?"""
        ...


class AnswerEncoder(Protocol):
    """Events to client bytes. A whole answer comes out with its terminal event."""

    def feed(self, events: list[Event]) -> bytes: ...


class KeepingEncoder(AnswerEncoder, Protocol):
    """An encoder whose answer may be kept by the gateway: its end waits until that is done."""

    @property
    def final(self) -> dict[str, Any] | None:
        """The response object, once it is whole."""

    def release(self, changed: dict[str, Any] | None = None) -> bytes:
        """The end of the answer, with these fields of the response changed."""
        ...


class FrameEncoder(AnswerEncoder, Protocol):
    """Events to the frames of a stream."""

    def plain_writer(self, event: TextDelta | ThinkingDelta) -> Callable[[str], bytes] | None:
        """What writes further pieces like this event, the last that was fed, until the next `feed`; None: only `feed` does."""

    def plain_frame(self, event: TextDelta | ThinkingDelta) -> PlainFrame | None:
        """What these pieces look like, where all of them have the same bytes around their text."""


class HttpError(msgspec.Struct, frozen=True):
    """An error as a whole HTTP answer."""

    status: int
    body: bytes
    headers: dict[str, str] = {}


class ModelEntry(msgspec.Struct, frozen=True):
    """One entry of the model list that a gateway shows its clients."""

    id: str
    created: int = 0
    owner: str = "athena"
    display_name: str = ""
    max_input: int | None = None
    max_output: int | None = None
    root: str = ""
    """What the upstream calls it."""


class DecodeRequest(Protocol):
    """A client's body as a Request; `model` and `stream` where the URL says them, `version` where a header does. `recall` knows
    what parts of the body were before.

    Raises InvalidRequest.
    """

    def __call__(
        self,
        body: Mapping[str, Any],
        *,
        model: str | None = None,
        stream: bool | None = None,
        version: str | None = None,
        recall: Recall | None = None,
    ) -> Request: ...


class DecodeCountRequest(Protocol):
    """The body of a token counter as a Request. Raises InvalidRequest."""

    def __call__(self, body: Mapping[str, Any], *, model: str | None = None) -> Request: ...


class Portable(Protocol):
    """A request in words of other dialects; `kinds` says what its turns hold (`calls.survey`), where that is known."""

    def __call__(self, request: Request, kinds: int = ALL) -> Request: ...


class EncodeRequest(Protocol):
    """A prepared request as a body for an upstream; `recall` knows what turns and tools became before."""

    def __call__(self, request: Request, target: EncodeTarget, recall: Recall | None = None) -> Encoded: ...


class EncodeError(Protocol):
    """An error as an answer to a client; `request_id` where the dialect has a place for it."""

    def __call__(self, error: Error, request_id: str = "") -> HttpError: ...


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One API: requests both ways, answers both ways, errors both ways, token counts and model lists."""

    name: str
    id_style: IdStyle
    """Call ids that clients of this dialect take."""
    names: NameRule
    """Tool names that upstreams of this dialect take."""
    stream_type: str
    """Content type of a streamed answer."""
    family: str
    """Whose reasoning state is native here: anthropic, openai, gemini; "" where the dialect has none of its own."""
    system_turns: bool
    """System messages may stand anywhere in a conversation."""
    signs_thinking: bool
    """Clients replay thinking only when it carries a signature."""
    signs_calls: bool
    """A call has a slot for reasoning state of its own; else the state stands before it, in a block of its own."""
    custom_calls: bool
    """Clients know free-form calls; else their text is put under one key."""
    stream_end: bytes
    """The frame that only says that all is said; empty where there is none."""
    named_events: bool
    """Clients tell events by their `event:` line, which repeats the payload's `type`."""
    usage_on_request: bool
    """Streams report usage only to clients that asked for it."""
    keep_alive: bytes
    """Bytes that keep a stream open and that every client of the dialect ignores."""

    portable: Portable
    """A request of this dialect for a target of another, or for a model that is taught tools in its prompt: what the client
    runs itself as functions, and what only this dialect has said in plain words. What had to go is among its losses."""
    decode_request: DecodeRequest
    encode_request: EncodeRequest
    """A prepared Request as a body for an upstream. Raises UnsupportedFeature for what must not be dropped."""
    stream_decoder: Callable[[DecodeContext], AnswerDecoder]
    whole_decoder: Callable[[DecodeContext], AnswerDecoder]
    stream_encoder: Callable[[EncodeContext], FrameEncoder]
    whole_encoder: Callable[[EncodeContext], AnswerEncoder]
    decode_error: Callable[[int, Mapping[str, str], bytes], Error]
    """An upstream's error, from its status, headers and body."""
    encode_error: EncodeError
    encode_models: Callable[[list[ModelEntry]], dict[str, Any]]
    """The body of the list of models."""
    encode_count: Callable[[int], dict[str, Any]]
    """The body of a token counter's answer."""
    decode_count_request: DecodeCountRequest
    plain_answer: Callable[[bytes, bool], list[Event] | None] | None = None
    """The events of a whole answer that is one text, well-formed calls, or both, and nothing else: its start, the text, for
    each call its start, its arguments and its end, and its end. None for any other. The flag says whether the client speaks
    this dialect, too, and gets the fields that no other knows. Raises nothing."""

    def decoder(self, context: DecodeContext, *, stream: bool) -> AnswerDecoder:
        """The decoder of one answer of an upstream."""
        return self.stream_decoder(context) if stream else self.whole_decoder(context)

    def encoder(self, context: EncodeContext, *, stream: bool) -> AnswerEncoder:
        """The encoder of one answer to a client."""
        return self.stream_encoder(context) if stream else self.whole_encoder(context)


def model_value(entry: ModelEntry) -> dict[str, Any]:
    """One model of OpenAI's list. It has no fields for windows and for the model behind a name: these are what
    compatible servers call them."""
    value: dict[str, Any] = {"id": entry.id, "object": "model", "created": entry.created, "owned_by": entry.owner}
    if entry.max_input is not None:
        value |= {"context_length": entry.max_input, "max_model_len": entry.max_input}
    if entry.max_output is not None:
        value["max_completion_tokens"] = entry.max_output
    if entry.root:
        value["root"] = entry.root
    return value


UNREADABLE = (msgspec.ValidationError, msgspec.DecodeError, UnicodeError, RecursionError)
"""What reading bytes can raise that are not what they should be."""


class StreamDecoder(ABC):
    """The loop of a decoder of server-sent events: one subclass hook per record, one for the end.

    Records that are not JSON are dropped (both SDKs would crash on them) and counted in `bad_records`; one
    that began as JSON and is broken was part of the answer, which is then not whole.
    """

    def __init__(self, context: DecodeContext) -> None:
        self.context = context
        self.bad_records = 0
        self.ended = False
        self._sse = SseDecoder(context.limits.event_bytes)
        self._accepts = context.accepted is not None
        self._event_bytes = context.limits.event_bytes
        self._brought = 0
        """How many events the last record brought."""
        self._plain_reads = PlainReads()

    def feed(self, data: bytes) -> list[Event]:
        out: list[Event] = []
        if self.ended:
            return out
        sse = self._sse
        single = (
            sse.idle
            and data[:6] == b"data: "
            and data.find(b"\n") == len(data) - 2
            and data[-1] == 0x0A
            and b"\r" not in data
            and len(data) <= self._event_bytes
        )
        try:
            # One event in one read is the rule when a model's pace sets the reads.
            before = 0
            for name, payload in (("", data[6:-2]),) if single else sse.feed(data):
                before = len(out)
                try:
                    self.record(name, payload, out)
                except UNREADABLE as error:
                    self._unread(name, payload, error, out)
                else:
                    if self._accepts:
                        self._accept(name, payload, out)
                if self.ended:
                    break  # type: ignore[unreachable]  # the record may have ended it; mypy does not look into calls
            self._brought = len(out) - before
        except AthenaError as error:
            self.fail(out, upstream_fault(error))
        return out

    # -- the short way -------------------------------------------------------------------------------------------------------

    def plain_reader(self, event: TextDelta | ThinkingDelta, data: bytes) -> PlainReader | None:
        """What tells the text of records that are pieces like the last one and nothing else, until the next `feed`.

        `data` was the last record, and this the last event. None: only `feed` can tell.
        """
        if self.ended or self._brought != 1 or not self._sse.at_rest or self._event_bytes < PLAIN_BYTES:
            return None
        shape = self.plain_shape(event)
        if shape is None:
            return None
        if self._plain_reads.learn(shape, data):
            return self._plain_reads
        return EachRecord(shape, data, is_noted=self.plain_note(event) is not None) if self.reads_each_plain else None

    def plain_shape(self, event: TextDelta | ThinkingDelta) -> PlainShape | None:
        """How further pieces like this event look, if in the present state they would bring nothing but their text."""
        return None

    reads_each_plain = False
    """Is the shape's own reader enough, whatever else a record holds beside its text?"""

    def plain_note(self, event: TextDelta | ThinkingDelta) -> Callable[[str], None] | None:
        """What is to be told of each text that takes the short way; None: nothing."""
        return None

    # -- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> list[Event]:
        """The terminal event, if the records so far had none."""
        out: list[Event] = []
        if self.ended:
            return out
        try:
            for name, payload in self._sse.close():
                try:
                    self.record(name, payload, out)
                except UNREADABLE as error:
                    self._unread(name, payload, error, out)
                else:
                    if self.context.accepted is not None:
                        self._accept(name, payload, out)
                if self._has_ended():
                    return out
            self.end(out)
        except AthenaError as error:
            self.fail(out, upstream_fault(error))
        self.ended = True
        return out

    @property
    def finished(self) -> bool:
        """Has the upstream said why it ended? Dialects with an end of their own need not know."""
        return False

    def _unread(self, name: str, payload: bytes, error: Exception, out: list[Event]) -> None:
        """A record that did not decode: with what UTF-8 cannot hold replaced, it may."""
        mended = mended_json(payload)
        if mended != payload:
            try:
                self.record(name, mended, out)
            except UNREADABLE as second:
                self.bad_record(mended, second, out)
            else:
                if self.context.accepted is not None:
                    self._accept(name, mended, out)
            return
        self.bad_record(payload, error, out)
        if not self.ended and self.context.junk is not None:
            self.context.junk.append((name, payload))

    def _accept(self, name: str, payload: bytes, out: list[Event]) -> None:
        last = out[-1] if out else None
        if self.context.accepted is not None and not is_failure(last):
            self.context.accepted.append((name, payload if payload.isascii() else mended_json(payload)))

    def bad_record(self, payload: bytes, error: Exception, out: list[Event]) -> None:
        """A record that did not decode: skip what never was JSON, fail on JSON that is broken or of the wrong shape."""
        if isinstance(error, msgspec.ValidationError):
            self.fail(out, protocol_error(f"a stream record has the wrong shape: {error}", payload))
        elif payload.lstrip().startswith(b'{"') and not self.finished:
            self.fail(out, protocol_error(f"a stream record is broken: {error}", payload))
        else:
            self.bad_records += 1

    def _has_ended(self) -> bool:
        return self.ended

    def fail(self, out: list[Event], error: Error) -> None:
        """End the answer with an error."""
        out.append(error)
        self.ended = True

    def finish(self, out: list[Event], *dones: Done) -> None:
        out.extend(dones)
        self.ended = True

    @abstractmethod
    def record(self, name: str, payload: bytes, out: list[Event]) -> None:
        """Read one record; every dialect has its own."""

    def end(self, out: list[Event]) -> None:
        """Hook: the bytes ended and no record had ended the answer."""
        self.fail(out, closed_error())


class WholeDecoder(ABC):
    """A decoder of a whole body: the same events, at the end."""

    def __init__(self, context: DecodeContext) -> None:
        self.context = context
        self._body = bytearray()
        self._failed: Error | None = None
        self._closed = False

    def feed(self, data: bytes) -> list[Event]:
        """Nothing yet: a whole answer means nothing before its last byte."""
        if self._closed:
            if self._failed is not None:
                return []
            raise UsageError("feed() after close()")
        self._body += data
        if len(self._body) <= self.context.limits.answer_bytes:
            return []
        # Said at once: an upstream that never stops is not read to the end of its time.
        self._closed, self._failed = True, Error("the answer is larger than the limit", code="answer_too_large")
        self._body.clear()
        return [self._failed]

    def close(self) -> list[Event]:
        if self._closed:
            return []
        self._closed = True
        out: list[Event] = []
        body = bytes(self._body)
        if not body.strip():
            return [closed_error()]
        try:
            try:
                self.whole(body, out)
            except UNREADABLE:
                mended = mended_json(body)
                if mended == body:
                    raise
                out.clear()
                self.whole(mended, out)
                body = mended
        except AthenaError as error:
            out.append(upstream_fault(error))
        except UNREADABLE as error:
            out.append(protocol_error(f"the answer is not what the dialect allows: {error}", body))
        if self.context.accepted is not None:
            self.context.accepted.append(("", body if body.isascii() else mended_json(body)))
        return out

    @property
    def finished(self) -> bool:
        """A whole answer is finished with its last byte."""
        return False

    @abstractmethod
    def whole(self, body: bytes, out: list[Event]) -> None:
        """Read the complete body; every dialect has its own."""


def protocol_error(message: str, payload: bytes = b"") -> Error:
    """The error for an upstream that sent what its dialect does not allow."""
    return Error(message, kind="upstream", code="upstream_protocol", raw=payload[:2000].decode("utf-8", "replace"))


def upstream_fault(error: AthenaError) -> Error:
    """An exception while an answer was read: whatever bound was crossed, the client did not cross it."""
    event = error_event(error)
    return event if isinstance(error, UpstreamError) else msgspec.structs.replace(event, kind="upstream", status=None)


_USAGE = re.compile(
    rb"""(?<!\\)"(?:usage|usage_metadata|usageMetadata|timings)"\s*+:\s*+"""
    rb"\{[^{}]*+(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+){0,16}\}[^{}]*+){0,16}\}"
)
"""An object of token counts, which never nests deeper."""
_ENDLESS = re.compile(rb"-?\d[\d.]*+[eE]\+?+\d{3,}+")


def mended_json(payload: bytes) -> bytes:
    """JSON text that the decoder refused, without what no value can hold.

    Bytes that are no character and halves of surrogate pairs become U+FFFD. Token counts that no number can hold become null:
    they are no reason to throw an answer away. In arguments of calls numbers are never touched.
    """
    text = without_lone_surrogates(payload.decode("utf-8", "replace").encode())
    if b"e" not in text and b"E" not in text:
        return text
    return _USAGE.sub(lambda counts: _ENDLESS.sub(b"null", counts.group()), text)


def token_count(value: object) -> int:
    """A number of tokens as some server wrote it; 0 for what can be none."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 53:
        return 0
    return int(value)


def closed_error() -> Error:
    """The upstream ended without finishing: never a success."""
    return Error("the upstream ended the answer before it was finished", kind="upstream", code="upstream_closed")


STATUS_OF: dict[ErrorKind, int] = {
    "invalid": 400,
    "context_length": 400,
    "content_policy": 400,
    "auth": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
    "cancelled": 499,
    "upstream": 502,
    "server": 500,
}


def kind_of_status(status: int) -> ErrorKind:
    """The row of the error table for an HTTP status without a better explanation."""
    if status in (401, 402, 403, 404, 409, 413, 429):
        return _KIND_OF_STATUS[status]
    if status in (503, 529):
        return "overloaded"
    if status in (408, 504, 524):
        return "timeout"
    if status == 499:
        return "cancelled"
    return "upstream" if status >= 500 or status < 400 else "invalid"


_KIND_OF_STATUS: dict[int, ErrorKind] = {
    401: "auth", 402: "billing", 403: "permission", 404: "not_found", 409: "conflict", 413: "too_large", 429: "rate_limit",
}  # fmt: skip


def loose_error(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    """An error body of any server: nested, flat, a string, FastAPI's detail, an array of one, HTML, nothing.

    `code` and `param` are the server's own words where it has them.
    """
    message, code, param = "", "", None
    text = body[:20000].decode("utf-8", "replace")
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
        stripped = text.strip()
        message = "" if stripped.startswith("<") else stripped[:1000]
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        inner = value.get("error", value.get("detail", value))
        if isinstance(inner, list) and inner:
            inner = inner[0]
        if isinstance(inner, dict):
            found = inner.get("message", inner.get("msg", inner.get("detail")))
            message = found if isinstance(found, str) else msgspec.json.encode(inner).decode()[:1000]
            for key in ("code", "type", "status"):
                if isinstance(inner.get(key), str) and inner[key]:
                    code = inner[key]
                    break
            param = inner.get("param") if isinstance(inner.get("param"), str) else None
            if status < 400:
                status = told_status(inner) or status
        elif isinstance(inner, str):
            message = inner
    message = message or f"the upstream answered with status {status}"
    kind = kind_of_status(status)
    if kind == "invalid" and is_context_overflow(message, code):
        kind = "context_length"
    elif kind == "upstream" and refuses_images(message):
        kind = "invalid"
    return Error(
        message=message,
        kind=kind,
        code=code or ("upstream_auth" if status in (401, 403) else "upstream_status"),
        status=status,
        retry_after=retry_after(headers, value, message),
        param=param,
        raw=text[:2000],
    )


def told_status(error: Mapping[str, Any]) -> int | None:
    """The HTTP status that an error object names as its code; other numbers there are no statuses."""
    number = error.get("code", error.get("status"))
    return number if type(number) is int and 400 <= number < 600 else None


_OVERFLOWS = (
    "prompt is too long", "prompt too long", "input is too long", "maximum context length", "context length exceeded",
    "context_length_exceeded", "exceeds the context length", "greater than the context length", "the model's context length",
    "max context length", "context window", "available context size", "context size has been exceeded", "maximum model length",
    "maximum prompt length", "exceeded model token limit", "reduce the length of the messages", "prompt token count",
    "exceeds the maximum number of tokens", "input token count", "range of input length should be",
    "maximum allowed input length",
)  # fmt: skip
"""How Anthropic, OpenAI, Gemini, Bedrock, xAI, Groq, Mistral, Kimi, Copilot, Together, DashScope, vLLM, llama.cpp, LM Studio
and Ollama say that a conversation is too long. Outside of OpenAI there is no machine code for it."""
_OVERFLOWS_OF_AGENTS = (
    "prompt is too long", "input is too long for requested model", "exceeds the context window", "maximum context length is",
    "exceeds the maximum number of tokens", "reduce the length of the messages", "exceeds the available context size",
    "greater than the context length", "exceeded model token limit", "context_length_exceeded",
)  # fmt: skip
"""Those of them that the agents themselves look for: with any of them they compact their history."""


def is_context_overflow(message: str, code: str) -> bool:
    """Agents start to compact their history on this error, so it must keep its meaning."""
    if code in ("context_length_exceeded", "request_too_large", "exceed_context_size_error"):
        return code != "request_too_large"
    lowered = message.lower()
    return any(words in lowered for words in _OVERFLOWS)


_IMAGES_REFUSED = (
    "image input is not supported", "provide the mmproj", "support image", "images are not supported", "at most 0 image",
    "not a multimodal model", "multimodal inputs are not supported", "support vision", "unknown variant `image_url`",
)  # fmt: skip
"""How llama.cpp, Ollama, vLLM, SGLang, OpenRouter and DeepSeek say that a model reads text only, some with status 500."""


def refuses_images(message: str) -> bool:
    """Did a server refuse the request's images? That is no failure of the server: asked again, it would say the same."""
    lowered = message.lower()
    return any(words in lowered for words in _IMAGES_REFUSED)


def overflow_message(error: Error, own_words: str, looked_for: Sequence[str] = _OVERFLOWS_OF_AGENTS) -> str:
    """The message of an error; where a conversation is too long, begun with `own_words` of the dialect if it has none of those
    that the dialect's agents look for."""
    message = error.message
    if error.kind != "context_length" or any(words in message.lower() for words in looked_for):
        return message
    return f"{own_words}: {message}"


def whole_seconds(wait: float) -> int:
    """A wait as `retry-after` says it. Rounded up: a client that comes back too soon is refused again."""
    return max(0, math.ceil(wait))


def retry_after(headers: Mapping[str, str], body: Any = None, message: str = "") -> float | None:
    """Seconds to wait: from headers, Gemini's RetryInfo, or "try again in 1.5s"."""
    for key, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(key)
        if value:
            seconds = _seconds(value)
            if seconds is not None:
                return seconds * scale
    if isinstance(body, dict):
        inner = body.get("error")
        details = inner.get("details") if isinstance(inner, dict) else None
        for detail in details if isinstance(details, list) else ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            seconds = _seconds(delay[:-1]) if isinstance(delay, str) and delay.endswith("s") else None
            if seconds is not None:
                return seconds
    return _told_wait(message)


def _seconds(text: str) -> float | None:
    """A usable number of seconds: finite, not negative."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _told_wait(message: str) -> float | None:
    start = message.lower().find("try again in ")
    if start < 0:
        return None
    word = message[start + 13 : start + 40].split(" ")[0].rstrip(".,;")
    for suffix, scale in (("ms", 0.001), ("s", 1.0)):
        if word.endswith(suffix):
            seconds = _seconds(word[: -len(suffix)])
            return None if seconds is None else seconds * scale
    return None


def estimated(usage: Usage | None) -> Usage:
    """A usage to show when the upstream gave none."""
    return usage if usage is not None else Usage(estimated=True)

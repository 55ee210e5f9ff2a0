"""The shape every dialect has: what it reads and writes, as values and protocols.

A dialect is a package `dialects/<name>/` whose `__init__` holds one constant `DIALECT`. It knows its own wire form and the
neutral model, nothing else: no other dialect, no text format, no vendor's name (a vendor's quirks arrive as a `Profile`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import msgspec

from athena.calls.names import NameRule
from athena.calls.survey import ALL
from athena.calls.tracker import Mender
from athena.dialects.plain_reads import PlainFrame
from athena.model.events import Error, Event, PlainPiece
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.profile import IdStyle, Profile
from athena.model.request import Loss, Request, Tool, by_weight
from athena.opaque import Envelope
from athena.wire.recall import Recall
from athena.wire.response_json import ResponseJson
from athena.wire.sse import WireRecord


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
    for name in _CONVERSATION:
        if name in body:
            ordered = dict(body)
            ordered[name] = ordered.pop(name)
            return ordered
    return body


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

    def written(self) -> ResponseJson:
        """The same as JSON, of which the end of the answer is made."""
        ...

    def release(self, changed: dict[str, Any] | None = None) -> bytes:
        """The end of the answer, with these fields of the response changed."""
        ...


class FrameEncoder(AnswerEncoder, Protocol):
    """Events to the frames of a stream."""

    def plain_writer(self, event: PlainPiece) -> Callable[[str], bytes] | None:
        """What writes further pieces like this event, the last that was fed, until the next `feed`; None: only `feed` does."""

    def plain_frame(self, event: PlainPiece) -> PlainFrame | None:
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

"""The whole path of one request and its answer, without IO.

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

import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

import msgspec

from athena.advice import advised, lacks_path
from athena.answer_path import AnswerPath, Options, Route
from athena.calls.survey import known_facts
from athena.dialects import get_dialect
from athena.dialects.base import Encoded, EncodeTarget, KeepingEncoder, conversation_last
from athena.dialects.decoders import UNREADABLE, protocol_error
from athena.dialects.error_kinds import kind_of_status
from athena.dialects.plain_reads import BurstParts, PlainSplice, SplicedRecord
from athena.errors import AthenaError, UsageError
from athena.formats.machine.policies import EchoRule
from athena.model.events import Done, Error, Event, TextDelta, Usage, error_event
from athena.model.request import Loss, Request, by_weight
from athena.plain_answer import PLAIN_BYTES, may_be_plain, plain_answer
from athena.prepare import Prepared, prepare
from athena.prompted.render import correction_turns, merged_turns
from athena.prompted.stage import Correction, PromptedStage
from athena.restore import MEANINGFUL
from athena.wire.recall import Recall
from athena.wire.sse import Beginning, beginning_of

__all__ = [
    "NOTHING",
    "AnswerPath",
    "Exchange",
    "Head",
    "Options",
    "Route",
    "Step",
    "UpstreamCall",
    "quotation_losses",
    "warnings_header",
]


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
_SNIFF_LIMIT = 64 * 1024
_WARNINGS_LIMIT = 4096
_PATHS_SHOWN = 3


class Exchange:
    """One attempt to answer a request: what goes upstream, and what becomes of the answer."""

    # What holds for every exchange until something else is known of it.
    done = False
    defect = ""
    """The trace of an exception that a stage raised over the upstream's answer: a fault of ours, for the shell's log."""
    outcome: Literal["", "ok", "error"] = ""
    error: Error | None = None
    usage: Usage | None = None
    _correction: Correction | None = None
    _path: AnswerPath | None = None
    _headed = False
    _head_sent = False
    _first = b""
    """What came before it is known what it is."""
    _has_waited = False
    """Its first read may be all of the answer, and plain."""
    _failed_status = 0
    _failed_headers: Mapping[str, str] = MappingProxyType({})
    _failed_body = b""

    def __init__(self, request: Request, route: Route, options: Options | None = None, recall: Recall | None = None) -> None:
        """`recall` knows what parts of the request were and became before."""
        options = options or Options()
        self.request = request
        self.route = route
        self._options = options
        self._client = get_dialect(request.dialect)
        self._upstream = get_dialect(route.dialect)
        target = EncodeTarget(route.model, route.profile, route.strict)
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
            known=partial(known_facts, recall) if recall is not None else None,
        )
        encoded = self._upstream.encode_request(self.prepared.request, target, recall)
        self.request_losses: tuple[Loss, ...] = self.prepared.losses + encoded.losses
        self.call = self._written(encoded, recall)
        self._target = target
        self._held: list[bytes] = []

    def _written(self, encoded: Encoded, recall: Recall | None = None) -> UpstreamCall:
        """At home the client's own order of fields stays."""
        body = encoded.body if self._client is self._upstream else conversation_last(encoded.body)
        written = msgspec.json.encode(body) if recall is None else recall.encode(body)
        return UpstreamCall(encoded.path, encoded.headers, written)

    def warm_up(self) -> None:
        """Build now what reading the answer will need. It depends on the tools' names and takes long when there are many."""
        if self.route.format is not None and self.route.prompted is None:
            self.route.format.make_ready(tuple(tool.name for tool in self.prepared.request.tools))

    # -- the upstream speaks -----------------------------------------------------------------------------------------------

    def upstream_head(self, status: int, headers: Mapping[str, str]) -> Step:
        """The upstream's status and headers (lower-case names)."""
        if self._headed:
            raise UsageError("upstream_head() twice")
        self._headed = True
        if status >= 300:
            self._failed_status, self._failed_headers = status, headers
        return NOTHING

    def _open(self, beginning: Beginning) -> AnswerPath:
        """Whole or streamed, as the body's beginning says; where that says neither, as was asked for."""
        streamed = beginning == "events" if beginning in ("object", "events", "markup") else self.request.stream
        self._path = AnswerPath(
            self.request,
            self.route,
            self._options,
            prepared=self.prepared,
            upstream_stream=streamed,
            correction=self._correction,
            # A function of the options, not of this exchange: its request must go when its last user does, without the
            # collector.
            visible=partial(_shown_error, self._options),
        )
        return self._path

    def upstream_data(self, data: bytes, now: float = 0.0) -> Step:
        """The next bytes of the upstream's body; `now` is the shell's clock, for `deadline`."""
        if self.done:
            if self._path is not None:
                self._path.burst = None
            return NOTHING
        if self._failed_status:
            room = 64 * 1024 - len(self._failed_body)
            self._failed_body += data[: max(room, 0)]
            return NOTHING
        path = self._path
        if path is None:
            if not self._headed:
                raise UsageError("upstream_data() before upstream_head()")
            self._first += data
            beginning = beginning_of(self._first)
            if beginning == "nothing" and len(self._first) < _SNIFF_LIMIT:
                return NOTHING
            if beginning == "object" and not self._has_waited and self._may_be_plain():
                # All that matters of it may be one text, which is known at its end.
                self._has_waited = True
                return NOTHING
            path, data, self._first = self._open(beginning), self._first, b""
        try:
            events, output = path.feed(data, now)
        except Exception as error:
            return self._broke(error)
        return self._show(events, output)

    def _may_be_plain(self) -> bool:
        """May the answer be taken at its end without the stages of a path?"""
        if self._correction is not None or len(self._first) > min(PLAIN_BYTES, self._options.limits.answer_bytes):
            return False
        return may_be_plain(self.request, self.route, self._options, self.prepared, self._upstream)

    @property
    def short_way(self) -> Callable[[bytes], bytes | None] | None:
        """What to ask first about the next read, until it takes the long way: the client's bytes for one more piece of plain
        text, which is all that the read then means; None for any other. None: `upstream_data` takes the next read."""
        path = self._path
        if path is None or not path.has_short_way or not self._head_sent or self._held or self.done:
            return None
        return path.plain

    @property
    def splice(self) -> PlainSplice | None:
        """The same as bytes, for as long as there is a short way; see `PlainSplice`."""
        return self._path.splice if self._path is not None else None

    @property
    def spliced(self) -> tuple[bytes, SplicedRecord] | None:
        """What the read that took the short way last follows from, where that is shorter; see `SplicedRecord`."""
        return self._path.spliced if self._path is not None else None

    @property
    def burst(self) -> BurstParts | None:
        """Of what the read that took the long way last consists, where that is shorter."""
        return self._path.burst if self._path is not None else None

    def relayed(self, strings: list[bytes], last: bytes) -> None:
        """Texts, JSON strings as they came, were passed on by `splice`: this is called before anything else is."""
        assert self._path is not None
        self._path.relayed(strings, last)

    def forget_call(self) -> None:
        """No target will be asked again: what was sent upstream need not be kept."""
        self.call = msgspec.structs.replace(self.call, body=b"")

    @property
    def deadline(self) -> float | None:
        """When `tick` is to be called, on the clock of `upstream_data`; None: never."""
        stage = self._path.prompted if self._path is not None else None
        return stage.deadline if stage is not None else None

    def tick(self, now: float) -> Step:
        """Time passed without the upstream saying anything."""
        if self.done or self._path is None:
            return NOTHING
        try:
            events, output = self._path.tick(now)
        except Exception as error:
            return self._broke(error)
        return self._show(events, output)

    def upstream_end(self, failure: AthenaError | None = None) -> Step:
        """The upstream's body ended; `failure` says why when it did not end by itself."""
        if self.done:
            return NOTHING
        if self._failed_status:
            error = self._upstream.decode_error(self._failed_status, self._failed_headers, self._failed_body)
            return self._fail(_shown_error(self._options, error))
        path = self._path
        try:
            if path is None and self._has_waited:
                body, self._first = self._first, b""
                if failure is None:
                    plain = plain_answer(
                        body, self.request, self.route, self._options, self.prepared, self._client, self._upstream
                    )
                    if plain is not None:
                        return self._show(*plain)
                path = self._open("object")
                path.feed(body)
            if path is None:
                nothing = error_event(failure) if failure else Error("the upstream's answer is empty", code="upstream_empty")
                return self._fail(_shown_error(self._options, nothing))
            events, output = path.close() if failure is None else path.fail(error_event(failure))
        except Exception as error:
            return self._broke(error)
        return self._show(events, output)

    @property
    def waiting(self) -> KeepingEncoder | None:
        """What holds a response that is whole; the client gets its end by `release` once it is kept."""
        return self._path.waiting if self._path is not None and self.outcome == "ok" else None

    @property
    def finished(self) -> bool:
        """Has the upstream said why it ended? Then there is nothing left to wait for but its end."""
        return self._path is not None and self._path.finished

    @property
    def answer_losses(self) -> tuple[Loss, ...]:
        """What of the answer so far the client does not get."""
        path = self._path
        if path is None:
            return ()
        return path.losses + quotation_losses(self.notes) if self.finds_calls else path.losses

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What of request and answer did not survive as it was, as far as is known."""
        return self.request_losses + self.answer_losses

    @property
    def bad_records(self) -> int:
        """Records of the stream that were not JSON and were dropped."""
        return self._path.bad_records if self._path is not None else 0

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
    def reads_text(self) -> bool:
        """Are calls looked for in the model's text? Then a large piece of it can take long."""
        return self._path is not None and (self._path.formats is not None or self._path.prompted is not None)

    @property
    def finds_calls(self) -> bool:
        """Does the model's text hold anything that was taken for a call, or noted? Models that are taught tools in the prompt
        are always asked."""
        path = self._path
        if path is None:
            return False
        return path.prompted is not None or (path.formats is not None and path.formats.has_found)

    @property
    def text_calls(self) -> int:
        """Calls that were found in the model's text."""
        if self.prompted is not None:
            return self.prompted.calls
        stage = self._path.formats if self._path is not None else None
        return stage.calls if stage is not None else 0

    @property
    def echoes(self) -> int:
        """Calls in the model's text that it quoted from the request."""
        if self.prompted is not None:
            return self.prompted.echoes
        stage = self._path.formats if self._path is not None else None
        return stage.echoes if stage is not None else 0

    @property
    def echo_rule(self) -> EchoRule:
        """What happens to calls that are quoted from the request; `allow` makes them calls all the same."""
        route = self.route
        if route.prompted is not None:
            return route.prompted.echo
        return route.format.policies.echo if route.format is not None else "allow"

    @property
    def format_found(self) -> str:
        """The text format or formats in which calls were found."""
        if self.prompted is not None:
            return f"prompted_{self.prompted.style}" if self.prompted.calls else ""
        stage = self._path.formats if self._path is not None else None
        return "+".join(stage.formats) if stage is not None else ""

    @property
    def origins(self) -> dict[int, tuple[str, str]]:
        """The calls that text formats found, by number: in the `text` or the `reasoning`, and in which format."""
        stage = self._path.formats if self._path is not None else None
        return dict(stage.origins) if stage is not None else {}

    @property
    def held(self) -> int:
        """Bytes and characters that wait here: for the client's head, or for their meaning."""
        waiting = sum(map(len, self._held))
        stage = self._path.formats if self._path is not None else None
        return waiting + (stage.held if stage is not None else 0)

    @property
    def undecided(self) -> int:
        """Characters of text whose meaning is not known yet."""
        stage = self._path.formats if self._path is not None else None
        return stage.held if stage is not None else 0

    @property
    def undecided_texts(self) -> tuple[str, ...]:
        """These characters, for each choice and channel that has any."""
        stage = self._path.formats if self._path is not None else None
        return stage.held_texts if stage is not None else ()

    @property
    def notes(self) -> list[Error]:
        """What happened in the text without ending the answer."""
        if self.prompted is not None:
            return self.prompted.notes
        stage = self._path.formats if self._path is not None else None
        return stage.notes if stage is not None else []

    def keep_alive(self) -> bytes:
        """Bytes that keep a committed stream open."""
        return self._client.keep_alive if self.request.stream else b""

    # -- what the client sees ----------------------------------------------------------------------------------------------

    def _ask_again(self, correction: Correction) -> Step:
        """The model's answer was unusable and it was not shown: explain, and let it answer once more."""
        turns = (*self.prepared.request.turns, *correction_turns(correction.answer, correction.reason))
        request = msgspec.structs.replace(self.prepared.request, turns=merged_turns(turns))
        encoded = self._upstream.encode_request(request, self._target)
        self.call = self._written(encoded)
        self.request_losses += (Loss("tools", f"asked once more: {correction.reason}", "repaired"),)
        self._correction, self._path, self._headed = correction, None, False
        self._held.clear()
        return Step(again=self.call)

    def _show(self, events: list[Event], output: bytes) -> Step:
        stage = self._path.prompted if self._path is not None else None
        if stage is not None and stage.correction is not None and self._correction is None:
            return self._ask_again(stage.correction)
        if not events and not output:
            return NOTHING
        terminal = events[-1] if events else None
        if type(terminal) is TextDelta and self._head_sent and not self._held and self.request.stream:
            return Step(None, output, False, tuple(events))
        if isinstance(terminal, Error) and terminal.fatal:
            self.outcome, self.error, self.done = "error", terminal, True
            if not self._head_sent or not self.request.stream:
                return self._fail(terminal, events)
        elif isinstance(terminal, Done) and terminal.last:
            self.outcome, self.usage, self.done = "ok", terminal.usage, True
        if self.request.stream and not self._head_sent and MEANINGFUL.isdisjoint(map(type, events)):
            self._held.append(output)
            return Step(events=tuple(events)) if events else NOTHING
        if not self.request.stream and not self.done:
            return Step(events=tuple(events)) if events else NOTHING
        head = None if self._head_sent else self._take_head()
        if self._held:
            output = self._drain() + output
        return Step(head, output, self.done, tuple(events))

    def _fail(self, error: Error, events: list[Event] | None = None) -> Step:
        """An error before anything was shown: an HTTP error in the client's dialect, or a frame where the head is gone."""
        self.done, self.outcome, self.error = True, "error", error
        if self._head_sent and self.request.stream:
            path = self._path or self._open(beginning_of(self._first))
            return Step(output=path.broken(error), done=True, events=tuple(events or (error,)))
        self._held.clear()
        self._head_sent = True
        answer = self._client.encode_error(error, self._options.seed)
        headers = {"content-type": "application/json", **answer.headers}
        return Step(Head(answer.status, headers), answer.body, True, tuple(events or (error,)))

    def _broke(self, error: Exception) -> Step:
        """A stage raised over what the upstream sent: the client gets one failure in its dialect, whatever it has seen."""
        if isinstance(error, UNREADABLE):
            return self._fail(_shown_error(self._options, protocol_error(f"the answer cannot be read: {error}")))
        self.defect = "".join(traceback.format_exception(error))
        return self._fail(Error("the gateway failed; its log says why", kind="server", code="internal_error"))

    def _take_head(self) -> Head:
        self._head_sent = True
        if self.prompted is not None:
            self.prompted.forbid_reask()
        # A stream that is one JSON array is JSON, and nothing a reader of events could take apart.
        events = self.request.stream and not self._options.array
        headers = {"content-type": self._client.stream_type if events else "application/json"}
        if self.request.stream:
            headers["cache-control"] = "no-cache"
            headers["x-accel-buffering"] = "no"
        return Head(200, headers)

    def _drain(self) -> bytes:
        held = b"".join(self._held)
        self._held.clear()
        return held


def _shown_error(options: Options, error: Error) -> Error:
    """What a client may know of an error: no secret, no endless wait, and whose key it was that was refused."""
    if error.status in (401, 403) and options.hide_auth_errors:
        return Error(
            "the upstream refused the gateway's credentials; the operator has to fix the upstream's api_key",
            kind=kind_of_status(502),
            code="upstream_auth",
            status=502,
            fatal=error.fatal,
        )
    if error.code == "upstream_status" and lacks_path(error):
        error = msgspec.structs.replace(error, code="upstream_path")
    message = error.message
    if options.upstream and not options.hide_auth_errors:
        message = advised(error, options.upstream, options.base_url, options.dialect, has_key=options.has_key)
    wait = error.retry_after
    return msgspec.structs.replace(
        error,
        message=_without(message, options.secrets),
        code=_without(error.code, options.secrets),
        param=_without(error.param, options.secrets) if error.param else error.param,
        raw=_without(error.raw, options.secrets),
        details=None if any(secret in repr(error.details) for secret in options.secrets) else error.details,
        retry_after=wait if wait is None else min(wait, options.retry_after_max),
    )


def _without(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, "***")
    return text


def quotation_losses(notes: Iterable[Error]) -> tuple[Loss, ...]:
    """What to warn of: calls that were quoted from the request and stay text."""
    return tuple(Loss("answer", f"{note.message}; it stays text") for note in notes if note.code == "quoted_call")


def warnings_header(losses: Iterable[Loss], limit: int = 20) -> str:
    """The losses as one header value: path and what was done, no values of the client.

    The most important come first, and those of one kind stand together: twenty turns that lost the same are one entry.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for loss in by_weight(losses):
        groups.setdefault((loss.action, loss.reason), []).append(loss.path or "request")
    shown = [f"{_some(paths)} {action}: {reason}" for (action, reason), paths in list(groups.items())[:limit]]
    if len(groups) > limit:
        shown.append(f"and {len(groups) - limit} more")
    text = "; ".join(shown).encode("ascii", "replace").decode()
    # Paths hold the client's own field names, whatever is in them.
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text[:_WARNINGS_LIMIT]


def _some(paths: list[str]) -> str:
    """The first paths, and how many others there are."""
    named = ", ".join(paths[:_PATHS_SHOWN])
    return named if len(paths) <= _PATHS_SHOWN else f"{named} and {len(paths) - _PATHS_SHOWN} more"

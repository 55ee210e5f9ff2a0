"""Serves a recorded request again: the same bytes at the same times through the code of this version.

Everything that the request met at the time and that is no part of it (which upstreams were up, what was learnt, how many
retries were affordable, the tokens it was thought to have, keys) is answered from the recording. So with unchanged settings the
client's bytes come out equal, ids and times included, unless this version decides otherwise; with changed settings the
difference is theirs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from athena import errors
from athena.dialects import get_dialect
from athena.errors import AthenaError, UpstreamClosed, UpstreamError, UsageError
from athena.exchange import Exchange, Route, Step, UpstreamCall
from athena.formats.machine.policies import RepairLevel
from athena.formats.machine.stage import FormatOptions
from athena.model.events import Event
from athena.model.limits import Limits
from athena.model.profile import Profile
from athena.model.request import Kept, Loss, Request
from athena.recording import lines
from athena.recording.file import UnreadableRecording
from athena.recording.lines import Recording
from athena.recording.state import RecordedEnvelope, RecordedStore
from athena.serving.actions import Build, Keep, Pause, Send, Tell
from athena.serving.budget import Budget
from athena.serving.endpoints import Endpoint, gateway_endpoint
from athena.serving.health import RetryBudget, UpstreamHealth
from athena.serving.holding import RequestMemory
from athena.serving.learning import Learnt
from athena.serving.network import Origin, PoolLimits, Timeouts
from athena.serving.record import RequestRecord
from athena.serving.serving import Serving, ServingState
from athena.serving.settings import Health, Retries
from athena.serving.shared import AnswerSettings, Shared
from athena.serving.tap import Tap
from athena.serving.targets import Target
from athena.serving.tokens import Measured, TokenCounter
from athena.typed_values import reader
from athena.wire.fields import decode_json_object

Chunks = Literal["recorded", "random"] | int
_FOREVER = 1 << 60
_MOST_PAUSES = 64
_MOST_SHOWN = 400
"""Characters that wait, up to which they are told: with each piece of a long call all of them would be told again."""
_SEALED = re.compile(rb"gwc1\.[A-Za-z0-9_-]+")

_ValueT = TypeVar("_ValueT")
_kept, _retries, _answers = reader(Kept), reader(Retries), reader(AnswerSettings)
_route, _profile, _limits = reader(Route), reader(Profile), reader(Limits)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different from the recording."""

    client: str = ""
    """Another dialect for the client."""
    format: str = ""
    """Another text format to look for; `off` and `standard`: none."""
    repair: RepairLevel | Literal[""] = ""
    policy: str = ""
    """Another policy of prompted tools."""
    chunks: Chunks = "recorded"
    """Bytes in each read, or cut at random."""

    @property
    def touch_times(self) -> bool:
        """May the answer be read at other moments than it was?"""
        return bool(self.policy or self.format or self.chunks != "recorded")


NO_CHANGES = Changes()


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a replay: what came in, and what it brought."""

    kind: Literal["attempt", "head", "read", "end", "tick", "keep_alive", "stop", "told"]
    t: float
    attempt: int
    data: bytes = b""
    note: str = ""
    status: int = 0
    """Of the upstream, where this is its head."""
    events: tuple[Event, ...] = ()
    client_status: int = 0
    """Of the client, where this step began its answer."""
    client_headers: Mapping[str, str] = {}
    output: bytes = b""
    held: int = 0
    """Characters and bytes that wait after it."""
    undecided: int = 0
    """Characters among them whose meaning is not known yet."""
    undecided_texts: tuple[str, ...] = ()
    """These characters, unless there are very many."""
    reading: str = ""
    """The text format that is looked for, beside all others with unmistakable markers."""
    text_calls: int = 0
    echoes: int = 0
    bad_records: int = 0
    losses: tuple[Loss, ...] = ()
    origins: Mapping[int, tuple[str, str]] = {}
    """Calls that were found in text: by number, in which channel and in which format."""
    repair: str = ""
    """How far arguments are repaired."""
    prompted: str = ""
    """The style in which calls were taught to a model without tools."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a recorded request when it was served again."""

    request: Request
    steps: list[Moved]
    calls: list[UpstreamCall]
    """What was sent upstream, attempt by attempt."""
    paths: list[str]
    request_losses: tuple[Loss, ...]
    record: RequestRecord
    defect: str = ""

    @property
    def events(self) -> list[Event]:
        """All events that the client was shown, of the attempt that it got."""
        last = max((step.attempt for step in self.steps), default=0)
        return [event for step in self.steps if step.attempt == last for event in step.events]

    @property
    def output(self) -> bytes:
        """The client's whole body."""
        return b"".join(step.output for step in self.steps)

    @property
    def status(self) -> int:
        """The client's status; 0: it got none."""
        return next((step.client_status for step in self.steps if step.client_status), 0)


def decoded_request(recording: Recording) -> tuple[Request, Endpoint]:
    """The client's request, decoded, and the endpoint at which it came in."""
    asked = recording.request
    endpoint = gateway_endpoint(asked.method, asked.path, asked.query, asked.headers)
    if endpoint is None or endpoint.action != "answer":
        endpoint = Endpoint("answer", asked.dialect)
    value = decode_json_object(asked.body.data)
    version = asked.headers.get("anthropic-version")
    request = get_dialect(endpoint.dialect).decode_request(value, model=endpoint.model, stream=endpoint.stream, version=version)
    if recording.settings.kept is not None:
        request = msgspec.structs.replace(request, kept=_made(_kept, recording.settings.kept))
    return request, endpoint


def replay(
    recording: Recording, changes: Changes = NO_CHANGES, *, targets: Sequence[Target] | None = None, is_open: bool = False
) -> Replayed:
    """Serve it again; `targets` are asked in the place of the recorded ones. With `is_open` the exchange is still in flight:
    the replay stops where the recording does. Raises AthenaError where the request itself cannot be read, and UsageError for
    one that was not served."""
    if recording.header.kind != "served":
        raise UsageError(f"{recording.header.id} was {recording.header.kind}, not served: there is nothing to replay")
    if not (targets or recording.settings.targets or recording.settings.refusal):
        raise UnreadableRecording(f"{recording.header.id} names no target that could be asked: its settings are empty")
    request, endpoint = decoded_request(recording)
    array = endpoint.array
    if changes.client and changes.client != request.dialect:
        request, array = _asked_in(changes.client, request), False
    return _Run(recording, request, changes, targets, array=array, is_open=is_open).run()


def _asked_in(client: str, request: Request) -> Request:
    """The same request as a client of another dialect would have made it. Raises AthenaError where that dialect cannot."""
    request = msgspec.structs.replace(request, kept=None)
    asked = Exchange(request, Route(dialect=client, model=request.model, pairing="repair")).call
    is_gemini = client == "gemini"  # its URL says what the bodies of others do
    return get_dialect(client).decode_request(
        decode_json_object(asked.body),
        model=request.model if is_gemini else None,
        stream=request.stream if is_gemini else None,
    )


def changed(changes: Changes, targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets with what is to be different. Raises UsageError for unknown names."""
    return tuple(
        msgspec.structs.replace(
            target,
            route=_changed_route(changes, target.route),
            prompted_route=_changed_route(changes, target.prompted_route) if target.prompted_route is not None else None,
        )
        for target in targets
    )


def _changed_route(changes: Changes, route: Route) -> Route:
    reading, prompted = route.format, route.prompted
    if changes.format in ("off", "standard"):
        reading = None
    elif changes.format:
        reading = msgspec.structs.replace(reading or FormatOptions(), format=changes.format, tokens={}, declared=None)
        reading.recognizer()
    if changes.repair and reading is not None:
        policies = msgspec.structs.replace(reading.policies, repair=changes.repair)
        reading = msgspec.structs.replace(reading, policies=policies)
    if prompted is not None:
        if changes.repair:
            prompted = msgspec.structs.replace(prompted, repair=changes.repair)
        if changes.policy:
            prompted = msgspec.structs.replace(prompted, policy=changes.policy)
    return msgspec.structs.replace(route, format=reading, prompted=prompted)


class _Run(Tap):
    """One replay; it is the tap of its own serving, to see what is sent."""

    sees_bytes = True

    def __init__(
        self,
        recording: Recording,
        request: Request,
        changes: Changes,
        targets: Sequence[Target] | None,
        *,
        array: bool,
        is_open: bool,
    ) -> None:
        self._recording = recording
        self._request = request
        self._changes = changes
        self._is_open = is_open
        self._kept_alive, self._attempts = _attempts(recording, changes)
        """Keep-alives that are due before the next attempt is made, and the attempts."""
        self._attempt = 0
        self._stop = next((line for line in recording.happened if isinstance(line, lines.Stopped)), None)
        self._start = recording.header.clock
        self._now = self._start
        self._steps: list[Moved] = []
        self._calls: list[UpstreamCall] = []
        self._paths: list[str] = []
        settings = recording.settings
        self._is_changed = changes.touch_times or targets is not None
        targets = changed(changes, targets or [target_of(each) for each in settings.targets])
        record = RequestRecord(
            request_id=recording.header.id,
            dialect=request.dialect,
            key=settings.key,
            model=request.model,
            stream=request.stream,
            tools=len(request.tools),
        )
        record.large = settings.large
        memory = Budget(_FOREVER, lambda: self._now)
        shared = Shared(
            retries=_made(_retries, settings.retries),
            learnt=_RecordedLessons(settings, lambda: self._now),
            tokens=_RecordedTokens(self),
            envelope=RecordedEnvelope(recording.seals),
            store=RecordedStore(recording.seals),
            seal=lambda tenant, text: _recorded_seal(recording),
            answers=_made(_answers, settings.answers),
            memory=memory,
            health=_RecordedHealth(self, settings),
            retry_budget=_RecordedRetries(self),
            watchers=(_Watching(self),),
            wall_clock=lambda: float(self.coming.created) if self.coming is not None else recording.header.at,
        )
        self._serving = Serving(
            shared,
            request,
            targets,
            record,
            RequestMemory(memory),
            headers=recording.request.headers,
            key=None,
            array=array,
            now=self._start,
        )

    @property
    def coming(self) -> lines.Attempt | None:
        """The recorded attempt that is made next."""
        return self._attempts[self._attempt].line if self._attempt < len(self._attempts) else None

    # -- what is sent --------------------------------------------------------------------------------------------------------

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        self._calls.append(call)
        self._paths.append(path)

    # -- the run -------------------------------------------------------------------------------------------------------------

    def run(self) -> Replayed:
        """Serve the request through all its attempts."""
        serving = self._serving
        losses: tuple[Loss, ...] = ()
        pauses = 0
        while serving.state is not ServingState.OVER:
            if self.coming is None and self._is_open:
                break
            if self.coming is None and self._stop is not None:
                # It was ended between two attempts, or before the first.
                self._feed(self._stop)
                break
            if serving.state is ServingState.READY:
                # The request was made, and had not left yet.
                while self._kept_alive:
                    self._feed(self._kept_alive.pop(0))
            match serving.next(self._now):
                case Build():
                    serving.build()
                    if serving.exchange is not None:
                        losses = serving.exchange.request_losses
                case Send() as send:
                    self._answer(send)
                case Pause(until=until):
                    self._now = max(self._now, until)
                    pauses += 1
                    if pauses > _MOST_PAUSES:
                        raise UsageError("the replay waits for ever")
                case Keep():
                    written = [line for line in self._recording.happened if isinstance(line, lines.Write)]
                    self._now = max(self._now, self._start + written[-1].t) if written else self._now
                    missed = next((line for line in self._recording.happened if isinstance(line, lines.NotKept)), None)
                    changed = missed.changed if missed is not None else None
                    failure = _refusal_of(missed.failure) if missed is not None and missed.failure is not None else None
                    self._note("told", serving.kept(self._now, changed, failure))
                case Tell(step=step):
                    told = [line for line in self._recording.happened if isinstance(line, lines.ClientHead)]
                    self._now = self._start + told[-1].t if told else self._now
                    self._note("told", step)
        exchange = serving.exchange
        defect = exchange.defect if exchange is not None else ""
        if exchange is not None:
            losses = exchange.request_losses
        checks = serving.checks
        late = checks.late() if checks is not None else None
        for verdict in late() if late is not None else ():
            assert checks is not None
            checks.judge(verdict)
        serving.close(self._now)
        return Replayed(
            request=self._request,
            steps=self._steps,
            calls=self._calls,
            paths=self._paths,
            request_losses=losses,
            record=serving.record,
            defect=defect,
        )

    def _answer(self, send: Send) -> None:
        """One attempt, as it was recorded."""
        serving = self._serving
        number = self._attempt
        self._attempt += 1
        recorded = self._attempts[number] if number < len(self._attempts) else None
        if recorded is not None:
            self._now = self._start + recorded.line.t
        self._note("attempt", note=f"{send.target.upstream}/{send.target.model}")
        serving.sending(self._now)
        happened = recorded.happened if recorded is not None else []
        for at, line in enumerate(happened):
            if serving.state not in (ServingState.SENDING, ServingState.READING):
                self._kept_alive = [later for later in happened[at:] if isinstance(later, lines.KeptAlive)]
                return
            self._feed(line)
        if self._is_open and self.coming is None:
            return
        ended = UpstreamClosed("the recording holds no more of this answer", code="recording_ended")
        if serving.state is ServingState.SENDING:
            self._note("end", serving.failed(ended, self._now), note=ended.message)
        elif serving.state is ServingState.READING:
            self._note("end", serving.end(ended, self._now), note=ended.message)

    def _feed(self, line: lines.Happened) -> None:
        serving = self._serving
        if not isinstance(line, lines.Tick):
            self._pass_time(self._start + line.t)
        self._now = now = self._start + line.t
        if isinstance(line, lines.UpstreamHead):
            if serving.state is ServingState.SENDING:
                serving.head(line.status, line.headers, now)
                self._note("head", status=line.status)
        elif isinstance(line, lines.Read):
            if serving.state is ServingState.READING:
                data = line.body.data
                self._note("read", serving.data(data, now), data=data)
        elif isinstance(line, lines.AttemptEnd):
            failure = error_of(line.failure) if line.failure is not None else None
            note = failure.message if failure is not None else ""
            if serving.state is ServingState.SENDING and failure is not None:
                self._note("end", serving.failed(failure, now), note=note)
            elif serving.state is ServingState.READING:
                self._note("end", serving.end(failure, now), note=note)
        elif isinstance(line, lines.Tick):
            if not self._is_changed:
                self._note("tick", serving.tick(now))
        elif isinstance(line, lines.KeptAlive):
            self._note("keep_alive", serving.keep_alive(now))
        elif isinstance(line, lines.Stopped):
            self._note("stop", serving.stop(line.reason, now), note=line.reason)  # type: ignore[arg-type]

    def _pass_time(self, until: float) -> None:
        """With changed settings the moments of the recording are not those of this run: they come of its own deadlines."""
        serving = self._serving
        if not self._is_changed:
            return
        while (
            serving.state is ServingState.READING
            and serving.exchange is not None
            and serving.exchange.deadline is not None
            and serving.exchange.deadline <= until
        ):
            self._now = serving.exchange.deadline
            self._note("tick", serving.tick(self._now))

    def _note(
        self,
        kind: Literal["attempt", "head", "read", "end", "tick", "keep_alive", "stop", "told"],
        step: Step | None = None,
        *,
        data: bytes = b"",
        note: str = "",
        status: int = 0,
    ) -> None:
        exchange = self._serving.exchange
        head = step.head if step is not None else None
        undecided = exchange.undecided if exchange is not None else 0
        reading = exchange.route.format if exchange is not None else None
        taught = exchange.route.prompted if exchange is not None and exchange.prompted is not None else None
        repair = taught.repair if taught is not None else reading.policies.repair if reading is not None else ""
        self._steps.append(
            Moved(
                kind=kind,
                t=round(self._now - self._start, 6),
                attempt=self._attempt,
                data=data,
                note=note,
                status=status,
                events=step.events if step is not None else (),
                client_status=head.status if head is not None else 0,
                client_headers=head.headers if head is not None else {},
                output=step.output if step is not None else b"",
                held=exchange.held if exchange is not None else 0,
                undecided=undecided,
                undecided_texts=exchange.undecided_texts if exchange is not None and 0 < undecided <= _MOST_SHOWN else (),
                reading=reading.format if reading is not None else "",
                text_calls=exchange.text_calls if exchange is not None else 0,
                echoes=exchange.echoes if exchange is not None else 0,
                bad_records=exchange.bad_records if exchange is not None else 0,
                losses=exchange.answer_losses if exchange is not None else (),
                origins=exchange.origins if exchange is not None else {},
                repair=repair,
                prompted=exchange.prompted.style if exchange is not None and exchange.prompted is not None else "",
            )
        )


def _recorded_seal(recording: Recording) -> str:
    """The sealed summary that the client got: the key is not in a recording, and sealing again would give another text."""
    found = _SEALED.search(recording.client_bytes)
    return found[0].decode() if found is not None else ""


# -- what was met at the time ------------------------------------------------------------------------------------------------


class _Watching:
    """Lets a run see its own serving."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def wants_bodies(self) -> bool:
        return False

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap:
        return self._run


class _RecordedLessons(Learnt):
    def __init__(self, settings: lines.Settings, clock: Any) -> None:
        super().__init__(clock, correct=settings.correct)
        self._left_out = {(each.upstream, each.model): tuple(each.left_out) for each in settings.targets}

    @property
    def has_lessons(self) -> bool:
        return any(self._left_out.values())

    def known(self, target: Target, client: str) -> tuple[str, ...]:
        return self._left_out.get((target.upstream, target.model), ())

    def confirm(self, target: Target, features: tuple[str, ...], client: str) -> None:
        pass


class _RecordedTokens(TokenCounter):
    def __init__(self, run: _Run) -> None:
        super().__init__()
        self._run = run

    def count(self, request: Request, model: str, measured: Measured | None = None) -> int:
        coming = self._run.coming
        return coming.input_tokens if coming is not None else super().count(request, model, measured)


class _RecordedHealth(UpstreamHealth):
    def __init__(self, run: _Run, settings: lines.Settings) -> None:
        super().__init__(Health(failures=0, error_rate=0), lambda: 0.0)
        self._run = run
        self._recorded = settings

    def is_up(self, upstream: str) -> bool:
        coming = self._run.coming
        known = {target.upstream for target in self._recorded.targets}
        return coming is None or upstream not in known or self._recorded.targets[coming.target].upstream == upstream

    def candidates(self, targets: Sequence[Target]) -> Sequence[Target]:
        if self._recorded.refusal is not None:
            raise error_of(self._recorded.refusal)
        return targets


class _RecordedRetries(RetryBudget):
    def __init__(self, run: _Run) -> None:
        super().__init__(Retries())
        self._run = run

    def take(self) -> bool:
        return self._run.coming is not None


class _Answered(msgspec.Struct):
    line: lines.Attempt
    happened: list[lines.Happened]


def _attempts(recording: Recording, changes: Changes) -> tuple[list[lines.KeptAlive], list[_Answered]]:
    """What came in, attempt by attempt, and the keep-alives before the first; what left is made again."""
    before: list[lines.KeptAlive] = []
    found: list[_Answered] = []
    for line in recording.happened:
        if isinstance(line, lines.Attempt):
            found.append(_Answered(line, []))
        elif found and not isinstance(line, lines.ClientHead | lines.Write):
            found[-1].happened.append(line)
        elif isinstance(line, lines.KeptAlive):
            before.append(line)
    if changes.chunks != "recorded":
        for each in found:
            each.happened = _cut(each.happened, changes.chunks, recording.header.id)
    return before, found


def _cut(happened: list[lines.Happened], chunks: Literal["random"] | int, seed: str) -> list[lines.Happened]:
    """The same bytes in other pieces, each at the time at which its last byte came."""
    dice = hashlib.shake_256(seed.encode()).digest(4096)
    reads = [line for line in happened if isinstance(line, lines.Read)]
    data = b"".join(line.body.data for line in reads)
    arrived: list[tuple[int, float]] = []
    end = 0
    for line in reads:
        end += len(line.body.data)
        arrived.append((end, line.t))
    pieces: list[lines.Happened] = []
    at = which = 0
    while at < len(data):
        size = 1 + dice[len(pieces) % len(dice)] % 64 if chunks == "random" else chunks
        stop = min(at + size, len(data))
        while arrived[which][0] < stop:
            which += 1
        pieces.append(lines.Read(arrived[which][1], lines.Payload.of(data[at:stop])))
        at = stop
    others = [line for line in happened if not isinstance(line, lines.Read)]
    # A stable sort by time keeps the order of what happened at once: the head before the reads, the end after them.
    order: dict[type[lines.Happened], int] = {lines.UpstreamHead: 0, lines.AttemptEnd: 2, lines.Stopped: 3}
    return sorted([*others, *pieces], key=lambda line: (line.t, order.get(type(line), 1)))


def error_of(failure: lines.Failure) -> UpstreamError:
    """The exception that a line tells of."""
    kind = getattr(errors, failure.type, None)
    if not (isinstance(kind, type) and issubclass(kind, UpstreamError)):
        kind = UpstreamError
    made: UpstreamError = kind(
        failure.message,
        kind=failure.kind,
        code=failure.code,
        status=failure.status,
        retry_after=failure.retry_after,
    )
    made.request_sent = failure.request_sent
    return made


def _refusal_of(failure: lines.Failure) -> AthenaError:
    """Why the gateway itself could not answer."""
    return AthenaError(failure.message, kind=failure.kind, code=failure.code, status=failure.status)


def target_of(settings: lines.TargetSettings) -> Target:
    """A target as it was, except for where it is: nothing is sent there."""
    return Target(
        upstream=settings.upstream,
        model=settings.model,
        dialect=settings.dialect,
        route=_made(_route, settings.route),
        tools=settings.tools,
        origin=Origin("http", "127.0.0.1", 0),
        timeouts=Timeouts(),
        pool=PoolLimits(),
        base_url=settings.url or "http://127.0.0.1",
        own_path=settings.own_path,
        fixed_headers=(),
        profile=_made(_profile, settings.profile),
        limits=_made(_limits, settings.limits),
        context_limit_kb=settings.context_limit_kb,
        forward_key=False,
        secrets=(),
        has_key=settings.has_key,
        prompted_route=_made(_route, settings.prompted_route) if settings.prompted_route is not None else None,
    )


def _made(read: Callable[[object], _ValueT], value: object) -> _ValueT:
    """A part of the settings as it was then."""
    try:
        return read(value)
    except msgspec.ValidationError as error:
        raise AthenaError(f"the recording's settings cannot be used: {error}", code="unreadable_recording") from None

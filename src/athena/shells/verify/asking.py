"""Cases put to an upstream through a gateway in this process: concurrency, waiting, and what each answer shows."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import DecodeContext
from athena.errors import AthenaError
from athena.model.events import Event, error_event, is_terminal
from athena.model.events import is_failure as is_failure_event
from athena.model.request import Request
from athena.serving.refusals import refused_features
from athena.serving.settings import Health, Retries
from athena.shells.config import Config, Log, ModelRule, RecordSettings, Telemetry
from athena.shells.config.model import Learning
from athena.shells.config.targets import leads_to
from athena.shells.gateway.app import Gateway
from athena.shells.logs.redactor import secrets_of
from athena.shells.verify.keeping import FailureKeeper
from athena.shells.verify.watching import BothSides, MemoryClient, WatchedAttempt, Watching
from athena.verify.cases import AnswerMode, VerifyCase
from athena.verify.judging import Side, judge, read_side
from athena.verify.planning import Planner
from athena.verify.runs import SideResult, VerifyTrial
from athena.verify.verdicts import is_failure
from athena.wire.sse import beginning_of

_MODEL = "verified"
"""The client's name of the model under test."""
_AGAIN = 5
"""How often a request is repeated that is told to wait."""
_LONGEST_WAIT_S = 60.0
_WAIT_KINDS = ("rate_limit", "overloaded")


class Subject(msgspec.Struct, frozen=True):
    """The upstream and model under test, with the rule by which they are asked."""

    config: Config
    upstream: str
    model: str

    def gateway_config(self) -> Config:
        """The configuration of the gateway that asks: this target only, each attempt counted, nothing else served."""
        config = self.config
        own = next((rule for rule in config.models if leads_to(rule, f"{self.upstream}/{self.model}")), None)
        rule = own or ModelRule(match=_MODEL, use=f"{self.upstream}/{self.model}")
        rule = msgspec.structs.replace(rule, match=_MODEL, use=f"{self.upstream}/{self.model}", fallback=(), names=())
        return msgspec.structs.replace(
            config,
            models=(rule,),
            keys=(),
            retries=Retries(attempts=0),
            health=Health(failures=0, error_rate=0),
            record=RecordSettings(mode="off"),
            telemetry=Telemetry(),
            # A refusal is mended and not remembered: every request is first asked as it stands.
            learning=Learning(correct=config.learning.correct, keep_s=0.001),
            log=Log(),
        )


class Verifier:
    """Asks one subject. Use it with `async with`."""

    def __init__(
        self,
        subject: Subject,
        *,
        keeper: FailureKeeper | None = None,
    ) -> None:
        """`keeper` writes failing exchanges down; left out, none is kept."""
        self.subject = subject
        self._keeper = keeper
        self._watching = Watching()
        # The keeper comes first: it must have seen the end of a request before this decides what becomes of it.
        watchers = (keeper, self._watching) if keeper is not None else (self._watching,)
        self._gateway = Gateway(subject.gateway_config(), envelope_key=secrets.token_bytes(32), watchers=watchers)
        self._run = secrets.token_hex(3)
        self._numbers = itertools.count(1)

    @staticmethod
    def keeper(config: Config) -> FailureKeeper:
        """The keeper that writes into the archive of a configuration."""
        record = config.record if isinstance(config.record, RecordSettings) else RecordSettings()
        return FailureKeeper(Path(config.state_dir).expanduser(), record, lambda: tuple(secrets_of(config)))

    async def __aenter__(self) -> Verifier:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._gateway.close()
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.close)

    async def run(
        self, planner: Planner, *, concurrency: int = 4, told: Callable[[VerifyTrial], None] = lambda trial: None
    ) -> None:
        """Ask until the plan is done. `told` gets each answer as it comes."""

        async def worker() -> None:
            while (question := planner.next()) is not None:
                trial = await self.ask(*question, differs=planner.tally.differs)
                planner.done(trial)
                told(trial)

        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, concurrency)):
                group.create_task(worker())

    async def ask(
        self, case: VerifyCase, mode: AnswerMode, *, differs: Callable[[VerifyTrial], tuple[str, ...]] = lambda trial: ()
    ) -> VerifyTrial:
        """One case, once; asked again only where the upstream says that it has no time.

        `differs` names the metrics that an answer fails beside earlier ones; such an exchange is kept as well.
        """
        for again in range(_AGAIN + 1):
            trial, wait = await self._ask_once(case, mode, again, differs)
            if wait is None or again == _AGAIN:
                return trial
            await asyncio.sleep(min(wait, _LONGEST_WAIT_S))
        raise AssertionError("the loop returns")

    async def _ask_once(
        self, case: VerifyCase, mode: AnswerMode, again: int, differs: Callable[[VerifyTrial], tuple[str, ...]]
    ) -> tuple[VerifyTrial, float | None]:
        request_id = f"verify-{self._run}-{next(self._numbers)}"
        body = {"model": _MODEL, **case.body, "stream": mode == "stream"}
        if mode == "stream":
            body["stream_options"] = {"include_usage": True}
        client = MemoryClient("/v1/chat/completions", msgspec.json.encode(body), request_id)
        await self._gateway.serve(client)
        tap = self._watching.taps.pop(request_id, None)
        if tap is None or not tap.attempts:
            reason = client.body[:300].decode("utf-8", "replace")
            raise AthenaError(f"the case {case.id} cannot be asked: {reason}", code="bad_case")
        through = _through_side(tap, client.status)
        raw = raw_side(tap, tap.attempts[0], mode, ended_with=through.outcome.error_code)
        trial = _trial(case, mode, tap, raw, through, again)
        trial = msgspec.structs.replace(trial, differs=differs(trial))
        wait = None
        if raw.outcome.error_kind in _WAIT_KINDS and case.expects != "refusal":
            told = _told_wait(tap)
            wait = told if told is not None else 2.0**again
        kept = self._keeper is not None and self._keeper.keep_or_drop(request_id, keep=wait is None and is_failure(trial))
        return (msgspec.structs.replace(trial, recording=request_id) if kept else trial), wait


def raw_side(tap: BothSides, attempt: WatchedAttempt, mode: AnswerMode, *, ended_with: str = "") -> Side:
    """What the upstream sent, read by its own dialect's rules and with nothing mended.

    `ended_with` is the code of the error that a client of the gateway got.
    """
    target = attempt.target
    dialect = get_dialect(target.dialect)
    sent = _sent_request(attempt, tap.request, target.dialect, mode)
    body = attempt.body
    events: list[Event] = []
    is_left = False
    if attempt.status >= 300:
        events.append(dialect.decode_error(attempt.status, attempt.headers, body))
    elif not attempt.status or (attempt.failure is not None and not body):
        events.append(error_event(attempt.failure or AthenaError("no answer came", code="upstream_closed")))
    else:
        is_stream = beginning_of(body) == "events" if body.strip() else mode == "stream"
        decoder = dialect.decoder(DecodeContext(profile=target.profile, seed="verify"), stream=is_stream)
        events += decoder.feed(body)
        if attempt.failure is not None:
            # Half an answer is a cut one, however its half reads.
            events = [event for event in events if not is_failure_event(event)] + [error_event(attempt.failure)]
        elif attempt.is_over:
            events += decoder.close()
        else:
            # The gateway had seen enough and left: the upstream is not to blame for what is missing.
            is_left = not any(map(is_terminal, events))
    kind = attempt.headers.get("content-type", "").partition(";")[0].strip().lower()
    fits = kind == (dialect.stream_type.partition(";")[0] if mode == "stream" else "application/json")
    junk = getattr(decoder, "bad_records", 0) if 200 <= attempt.status < 300 and body else 0
    side = read_side(
        tuple(events),
        sent.tools or tap.request.tools,
        request=tap.request,
        model=target.model,
        sent=body,
        status=attempt.status,
        is_well_formed=fits and not junk,
    )
    if is_left:
        side = msgspec.structs.replace(side, left_for=ended_with)
    if attempt.failure is not None and body and side.outcome.error_code:
        side = msgspec.structs.replace(side, outcome=msgspec.structs.replace(side.outcome, began=True))
    return side


def _sent_request(attempt: WatchedAttempt, request: Request, dialect: str, mode: AnswerMode) -> Request:
    """The request as the upstream got it: tools may have other names there."""
    try:
        body = msgspec.json.decode(attempt.call.body)
        model = attempt.target.model if dialect == "gemini" else None
        return get_dialect(dialect).decode_request(body, model=model, stream=mode == "stream" if model else None)
    except (AthenaError, msgspec.DecodeError):
        return request


def _through_side(tap: BothSides, status: int) -> Side:
    """What a client of the gateway gets."""
    record = tap.record
    side = read_side(
        tuple(tap.events_seen), tap.request.tools, request=tap.request, model=tap.attempts[-1].target.model, status=status
    )
    outcome = side.outcome
    if not tap.events_seen and record is not None and record.error:
        outcome = msgspec.structs.replace(outcome, error_kind="upstream", error_code=record.error)
    began = any(data for attempt in tap.attempts for _, data in attempt.pieces) and tap.attempts[-1].status < 300
    outcome = msgspec.structs.replace(outcome, began=outcome.began or began)
    return msgspec.structs.replace(side, outcome=outcome)


def _told_wait(tap: BothSides) -> float | None:
    attempt = tap.attempts[-1]
    error = get_dialect(attempt.target.dialect).decode_error(attempt.status, attempt.headers, attempt.body)
    return error.retry_after


def _trial(case: VerifyCase, mode: AnswerMode, tap: BothSides, raw: Side, through: Side, again: int) -> VerifyTrial:
    first = tap.attempts[0]
    times = [at for at, data in first.pieces if data]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    dialect = first.target.dialect
    return VerifyTrial(
        case=case.id,
        mode=mode,
        raw=_result(case, mode, raw, dialect, is_raw=True),
        through=_result(case, mode, through, dialect, is_raw=False),
        status=first.status,
        error=raw.error or through.error,
        input_tokens=raw.input_tokens or through.input_tokens,
        output_tokens=raw.output_tokens or through.output_tokens,
        first_byte_ms=round((times[0] - first.sent_at) * 1000, 2) if times else 0.0,
        gap_ms=round(max(gaps, default=0.0) * 1000, 2),
        duration_ms=round((times[-1] - first.sent_at) * 1000, 2) if times else 0.0,
        again=again,
        facts=_facts(tap, through),
    )


def _facts(tap: BothSides, through: Side) -> dict[str, str]:
    """What this answer shows about how the upstream wants to be asked."""
    facts: dict[str, str] = {}
    record = tap.record
    if record is not None and record.corrections and not through.outcome.error_kind:
        facts["corrected"] = record.corrections
    if record is not None and record.tool_mode:
        facts["tool_mode"] = record.tool_mode
    first = tap.attempts[0]
    if first.status >= 400:
        error = get_dialect(first.target.dialect).decode_error(first.status, first.headers, first.body)
        refused = refused_features(error, tap.request, first.call.body)
        if refused:
            facts["refused"] = ",".join(refused)
    return facts


def _result(case: VerifyCase, mode: AnswerMode, side: Side, dialect: str, *, is_raw: bool) -> SideResult:
    calls = [[call.name, _value(call.arguments)] for call in side.calls]
    return SideResult(
        classes=tuple(found.label for found in side.found),
        marks=judge(case, mode, side, dialect=dialect, is_raw=is_raw),
        calls=msgspec.json.encode(calls, order="sorted").decode() if calls else "",
        finish=side.outcome.finish,
        word=side.finish,
    )


def _value(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments

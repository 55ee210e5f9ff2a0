"""A recording made readable: its row in a list, and its view with three lanes, marks and verdicts.

The lanes come of a replay, so they show what this version understands of the bytes; `View.replay` says whether that is what the
client was told at the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from athena.errors import AthenaError
from athena.formats.machine.value_types import ToolBook
from athena.model.events import Done, Error, ToolCallComplete, ToolCallStart
from athena.model.request import by_weight
from athena.prompted.validation import LATE_STEPS, ArgumentCheck
from athena.recording import lines
from athena.recording.compare import common_prefix, difference, differences_of_settings
from athena.recording.lines import Recording
from athena.recording.replay import NO_CHANGES, Changes, Moved, Replayed
from athena.recording.retold import replay_or_retell
from athena.recording.verdicts import verdict_of
from athena.recording.view import (
    CallVerdict,
    Change,
    Equality,
    EventItem,
    ExchangeRow,
    Mark,
    Prefix,
    ReadItem,
    ReplayResult,
    Requests,
    Timing,
    UpstreamRequest,
    View,
    WriteItem,
)
from athena.serving.record import RequestRecord

_AROUND = 60
_HELP = {
    "auth": "The upstream refused the key. Set the upstream's api_key, or the variable that it names.",
    "billing": "The account at the upstream has no credit left.",
    "permission": "The key at the upstream may not use this model.",
    "not_found": "The upstream does not know this model or path. See the base URL and the model's name.",
    "rate_limit": "The upstream takes no more requests for now. Wait, or name a fallback for this model.",
    "overloaded": "There is no room for now. Wait, or name a fallback for this model.",
    "timeout": "The upstream took too long. See why, or raise the limit under timeouts that the error's code names.",
    "context_length": "The conversation is longer than the model takes. Shorten or compact it.",
    "too_large": "The request is larger than a limit. The message names it.",
    "invalid": "The request was refused for what it holds. The message names the field.",
    "content_policy": "The upstream refused the content.",
    "upstream": "The upstream's answer could not be used. Look at its last reads in the first lane.",
    "server": "This is a fault of the gateway: its log says more. Export the recording and report it.",
}


_REPAIRED = {
    "syntax": "the arguments were no JSON as they came: they were made so",
    "schema": "the arguments were no JSON as they came, or did not fit the tool's schema: they were put right",
}
_UNSERVED = {
    "refused": "This request was refused before any upstream was asked. The client's answer says why.",
    "passed": "This request is passed through: nothing in it is translated, so there are no events and nothing to replay.",
}


def row_of(recording: Recording, size: int = 0) -> ExchangeRow:
    """The exchange in a list."""
    header, record = recording.header, recording.outcome.record
    known = {
        name: record[name]
        for name in ExchangeRow.__struct_fields__
        if name in record and name in RequestRecord.__struct_fields__
    }
    known["path"] = recording.request.path
    return ExchangeRow(
        id=header.id,
        at=header.at,
        verdict=verdict_of(record),
        program=header.program,
        session=header.session,
        agent=header.agent,
        parent=header.parent,
        response=header.response,
        size=size,
        redacted=header.redacted,
        kind=header.kind,
        **known,
    )


def view_of(recording: Recording, before: tuple[str, bytes] | None = None, changes: Changes = NO_CHANGES) -> View:
    """The exchange whole. `before` is the last request of its session, id and body. Raises AthenaError where it cannot be
    served again at all."""
    replayed = replay_or_retell(recording, changes)
    equal = difference(recording, replayed) if changes == NO_CHANGES else Equality(equal=True)
    return _View(recording, replayed).made(equal, before)


def views_of(exchanges: Sequence[tuple[Recording, Recording]]) -> list[View]:
    """Exchanges that are shown together, each as it was recorded and as it is shown, which may be redacted. Every request is
    compared with the one before it in its session, by the same agent. Raises as `view_of` does."""
    views = [view_of(shown) for _, shown in exchanges]
    last: dict[tuple[str, ...], tuple[Recording, Recording]] = {}
    for at in sorted(range(len(views)), key=lambda at: exchanges[at][0].header.at):
        recorded = exchanges[at][0]
        whose = (recorded.header.session, recorded.header.agent, recorded.request.dialect)
        if recorded.header.session and whose in last:
            views[at] = msgspec.structs.replace(views[at], prefix=_shown_prefix(last[whose], exchanges[at]))
        last[whose] = exchanges[at]
    return views


def live_view(recording: Recording, now: float) -> View:
    """An exchange in flight, as far as it came; `now` is what the clock says by which it is recorded. Raises as `view_of`
    does."""
    view = _View(recording, replay_or_retell(recording, is_open=True)).made(Equality(equal=True), None)
    so_far = round((now - recording.header.clock) * 1000, 2)
    row = msgspec.structs.replace(
        view.row,
        state="live",
        verdict="live",
        outcome="",
        chunks=sum(isinstance(line, lines.Read) for line in recording.happened),
        duration_ms=so_far,
    )
    return msgspec.structs.replace(view, row=row, timing=msgspec.structs.replace(view.timing, total=so_far))


def replayed_view(recording: Recording, changes: Changes) -> ReplayResult:
    """The exchange as it is, and with changes."""
    was, now = replay_or_retell(recording), replay_or_retell(recording, changes)
    found = differences_of_settings(was, now, changes)
    return ReplayResult(
        equal=not found,
        settings={name: str(value) for name, value in msgspec.structs.asdict(changes).items() if value not in ("", "recorded")},
        differences=found,
        was=_View(recording, was).made(difference(recording, was), None),
        now=_View(recording, now).made(Equality(equal=not found), None),
    )


class _View:
    def __init__(self, recording: Recording, replayed: Replayed) -> None:
        self._recording = recording
        self._replayed = replayed
        self._reads: list[ReadItem] = []
        self._events: list[EventItem] = []
        self._writes: list[WriteItem] = []
        self._marks: list[Mark] = []
        self._verdicts: dict[int, CallVerdict] = {}
        self._longest_hold = 0.0
        self._sent = b""

    def made(self, equal: Equality, before: tuple[str, bytes] | None) -> View:
        self._walk()
        recording = self._recording
        error = next((item.event for item in reversed(self._events) if item.event["event"] == "Error"), None)
        notes = list(recording.header.notes)
        if recording.header.kind != "served":
            notes.append(_UNSERVED[recording.header.kind])
        return View(
            row=row_of(recording),
            reads=self._reads,
            events=self._events,
            writes=self._writes,
            marks=self._marks,
            calls=[self._verdicts[call] for call in sorted(self._verdicts)],
            requests=self._requests(),
            settings=msgspec.to_builtins(recording.settings),
            timing=self._timing(),
            replay=equal,
            help=_HELP.get(error.get("kind", "upstream"), "") if error is not None and error.get("fatal", True) else "",
            prefix=prefix_of(before, recording.request.body.data) if before is not None else None,
            notes=notes,
        )

    # -- the lanes -----------------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        untold: int | None = None
        held_since: float | None = None
        last: Moved | None = None
        attempt, failed = 0, ""
        for number, step in enumerate(self._replayed.steps):
            if step.attempt != attempt:
                attempt, self._sent = step.attempt, self._attempt_bytes(step.attempt)
                if attempt > 1:
                    text = f"attempt {attempt}: {step.note}{f', after {failed}' if failed else ''}"
                    self._mark("retry", "retries", text, number)
                    untold, self._verdicts, failed = None, {}, ""
            if step.status >= 400:
                failed = f"status {step.status}"
            elif step.kind == "end" and step.note:
                failed = step.note
            self._reads.append(
                ReadItem(
                    step=number,
                    t=step.t,
                    kind=step.kind,
                    attempt=step.attempt,
                    size=len(step.data),
                    text=step.data.decode("utf-8", "replace"),
                    status=step.status,
                    note=step.note,
                )
            )
            for event in step.events:
                if untold is None:
                    untold = len(self._events)
                self._events.append(
                    EventItem(number=len(self._events), step=number, t=step.t, event=msgspec.to_builtins(event))
                )
                self._judge(event, step, number, len(self._events) - 1)
            self._marks_of(step, last, number)
            held_since = self._hold(step, held_since)
            if step.output or step.client_status:
                self._writes.append(
                    WriteItem(
                        step=number,
                        t=step.t,
                        size=len(step.output),
                        text=step.output.decode("utf-8", "replace"),
                        status=step.client_status,
                        first_event=untold,
                        last_event=len(self._events) - 1 if untold is not None else None,
                    )
                )
                untold = None
            last = step

    def _hold(self, step: Moved, since: float | None) -> float | None:
        if not step.held:
            if since is not None:
                self._longest_hold = max(self._longest_hold, step.t - since)
            return None
        return step.t if since is None else since

    def _attempt_bytes(self, attempt: int) -> bytes:
        return b"".join(step.data for step in self._replayed.steps if step.attempt == attempt)

    def _mark(self, kind: str, rule: str, text: str, step: int, *, event: int | None = None, call: int | None = None) -> None:
        self._marks.append(Mark(kind=kind, rule=rule, text=text, step=step, event=event, call=call))  # type: ignore[arg-type]

    def _marks_of(self, step: Moved, last: Moved | None, number: int) -> None:
        same = last if last is not None and last.attempt == step.attempt else None
        if step.undecided > (same.undecided if same is not None else 0):
            what = "1 character waits" if step.undecided == 1 else f"{step.undecided} characters wait"
            shown = "".join([f' "{text}"' for text in step.undecided_texts])
            text = f"{what}, which may be the beginning of a call{':' if shown else ''}{shown}"
            # Without a format of its own, a model's text is searched for the markers of all.
            self._mark("hold", "auto" if step.reading in ("", "standard") else step.reading, text, number)
        elif step.events and step.held and not step.output and not (same is not None and same.held):
            self._mark("hold", "head", "the client's status waits for the first event that decides it", number)
        for echo in range(same.echoes if same is not None else 0, step.echoes):
            self._mark("echo", "echo", f"call {echo + 1} quoted from the request stays text", number)
        dropped = step.bad_records - (same.bad_records if same is not None else 0)
        if dropped > 0:
            self._mark("drop", "bad_record", f"{dropped} records that are no JSON were dropped", number)
        known = set(same.losses) if same is not None else set()
        for loss in step.losses:
            if loss not in known:
                self._mark("drop", loss.action, f"{loss.path or 'answer'} {loss.action}: {loss.reason}", number)
        if step.kind == "keep_alive":
            self._mark("keep_alive", "keep_alive_s", "the client got something that it passes over", number)

    # -- calls ---------------------------------------------------------------------------------------------------------------

    def _judge(self, event: object, step: Moved, number: int, at: int) -> None:
        if isinstance(event, ToolCallStart):
            origin = step.origins.get(event.call)
            if origin is not None:
                place, rule = origin
                text = f"a call of {event.name} was found in the model's {'reasoning' if place == 'reasoning' else 'text'}"
                self._mark("text_call", rule, text, number, event=at, call=event.call)
            elif step.prompted:
                text = f"a call of {event.name} was read from the text of a model without tools"
                self._mark("text_call", f"prompted_{step.prompted}", text, number, event=at, call=event.call)
            if event.id.encode() not in self._sent:
                text = f"the upstream gave no id that this client takes: {event.id} is made up"
                self._mark("invented_id", "ids", text, number, event=at, call=event.call)
            self._verdicts[event.call] = self._verdict(event, step, number)
        elif isinstance(event, ToolCallComplete):
            if event.repaired:
                text = _REPAIRED.get(step.repair, "the arguments were repaired")
                self._mark("repair", step.repair or "repair", text, number, event=at, call=event.call)
            self._verdicts[event.call] = self._complete(event, step, number, at)
        elif isinstance(event, Error):
            kind = "bad_call" if event.call is not None else "error"
            self._mark(kind, event.code, event.message, number, event=at, call=event.call)
        elif isinstance(event, Done):
            self._finish(event, number, at)

    def _verdict(self, event: ToolCallStart, step: Moved, number: int) -> CallVerdict:
        origin = step.origins.get(event.call)
        if origin is not None:
            came_as = f"text in {'reasoning' if origin[0] == 'reasoning' else 'text'}, {origin[1]}"
        else:
            came_as = f"text, prompted {step.prompted}" if step.prompted else "native"
        return CallVerdict(
            call=event.call,
            id=event.id,
            name=event.name,
            arguments="",
            step=number,
            came_as=came_as,
            complete=False,
            json="custom" if event.kind == "custom" else "no",
            declared=any(tool.name == event.name for tool in self._replayed.request.tools),
            schema="unchecked",
            provenance="native" if came_as == "native" else "model",
            id_from="upstream" if event.id.encode() in self._sent else "invented",
        )

    def _complete(self, event: ToolCallComplete, step: Moved, number: int, at: int) -> CallVerdict:
        start = self._verdicts.get(event.call) or self._verdict(
            ToolCallStart(event.call, event.id, event.name, kind=event.kind), step, number
        )
        schema, problem = "unchecked", ""
        if start.declared and event.kind == "function":
            said = ArgumentCheck(ToolBook(self._replayed.request.tools)).verdict(event.name, event.arguments, LATE_STEPS)
            schema, problem = ("no" if said.problem else "unchecked" if said.unchecked else "yes"), said.problem
        if not start.declared:
            self._mark("bad_call", "unknown_tool", f"{event.name} is not declared", number, event=at, call=event.call)
        if problem:
            self._mark("bad_call", "off_schema", problem, number, event=at, call=event.call)
        return msgspec.structs.replace(
            start,
            arguments=event.arguments,
            complete=True,
            json="custom" if event.kind == "custom" else "yes" if _is_json(event.arguments) else "no",
            schema=schema,
            schema_problem=problem,
            repaired=event.repaired,
        )

    def _finish(self, event: Done, number: int, at: int) -> None:
        finish = event.finish
        said: str = finish.kind
        if finish.kind == "tool" and not finish.raw:
            said = "tool, derived"
            text = "the upstream did not say so itself: a complete call was made, so the answer ends for tool use"
            self._mark("finish", "finish", text, number, event=at)
        self._verdicts = {
            call: msgspec.structs.replace(verdict, finish=said) if not verdict.finish else verdict
            for call, verdict in self._verdicts.items()
        }

    # -- the rest ------------------------------------------------------------------------------------------------------------

    def _requests(self) -> Requests:
        asked, replayed = self._recording.request, self._replayed
        return Requests(
            method=asked.method,
            path=asked.path + (f"?{asked.query}" if asked.query else ""),
            headers=asked.headers,
            body=asked.body.data.decode("utf-8", "replace"),
            upstream=list(self._upstream_requests()),
            changes=[
                Change(path=loss.path or "request", action=loss.action, reason=loss.reason)
                for loss in by_weight(replayed.request_losses)
            ],
            tools=[tool.name for tool in replayed.request.tools],
        )

    def _upstream_requests(self) -> Iterator[UpstreamRequest]:
        attempts: list[tuple[lines.Attempt, int, str]] = []
        for line in self._recording.happened:
            if isinstance(line, lines.Attempt):
                attempts.append((line, 0, ""))
            elif attempts and isinstance(line, lines.UpstreamHead):
                attempts[-1] = (attempts[-1][0], line.status, "")
            elif attempts and isinstance(line, lines.AttemptEnd) and line.failure is not None:
                attempts[-1] = (*attempts[-1][:2], line.failure.message)
        for number, (line, status, failure) in enumerate(attempts, 1):
            target = self._recording.settings.targets[line.target]
            origin = target.url.partition("://")
            host = origin[2].partition("/")[0]
            yield UpstreamRequest(
                attempt=number,
                upstream=target.upstream,
                model=target.model,
                dialect=target.dialect,
                url=f"{origin[0]}://{host}{line.path}",
                headers=line.headers,
                body=line.body.data.decode("utf-8", "replace"),
                status=status,
                failure=failure,
            )

    def _timing(self) -> Timing:
        last = max((item.attempt for item in self._reads), default=0)
        attempts, heads, reads = (
            [item.t for item in self._reads if item.kind == kind and item.attempt == last]
            for kind in ("attempt", "head", "read")
        )
        gaps = [after - before for before, after in pairwise(reads)]
        record = self._recording.outcome.record
        return Timing(
            total=float(record.get("duration_ms", 0.0)),
            attempt=_ms(attempts),
            upstream_head=_ms(heads),
            first_read=_ms(reads),
            first_write=_ms([item.t for item in self._writes]),
            longest_gap=round(max(gaps, default=0.0) * 1000, 3),
            held=round(self._longest_hold * 1000, 3),
            own_us_per_chunk=float(record.get("own_us_per_chunk", 0.0)),
        )


def prefix_of(before: tuple[str, bytes], body: bytes) -> Prefix:
    """How a request begins like an earlier one."""
    name, earlier = before
    return _prefix(name, common_prefix(earlier, body), earlier, body)


def _shown_prefix(before: tuple[Recording, Recording], exchange: tuple[Recording, Recording]) -> Prefix:
    """The same of exchanges as they are shown. How much is equal is told of what was recorded, since the words that stand for
    others differ elsewhere; they stand where those stood unless a length changed."""
    (earlier, shown_earlier), (recorded, shown) = ([each.request.body.data for each in pair] for pair in (before, exchange))
    name = before[1].header.id
    if (len(shown_earlier), len(shown)) != (len(earlier), len(recorded)):
        return prefix_of((name, shown_earlier), shown)
    return _prefix(name, common_prefix(earlier, recorded), shown_earlier, shown)


def _prefix(name: str, at: int, earlier: bytes, body: bytes) -> Prefix:
    return Prefix(
        of=name,
        common=at,
        size=len(body),
        before=body[max(at - _AROUND, 0) : at].decode("utf-8", "replace"),
        was=earlier[at : at + _AROUND].decode("utf-8", "replace"),
        now=body[at : at + _AROUND].decode("utf-8", "replace"),
    )


def _ms(times: list[float]) -> float | None:
    return round(times[0] * 1000, 3) if times else None


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return False
    return True


def unreadable(recording: Recording, error: AthenaError) -> str:
    """A view that says why the recording cannot be shown."""
    return f"{recording.header.id} cannot be served again: {error.message}"

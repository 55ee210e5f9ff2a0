"""What a recording says happened, as the steps that a replay gives: for exchanges that no replay can make again.

A request that was refused at the door never came to be served, and one that is passed through is not understood at all. Both
are shown as they were recorded, without events.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from athena.errors import UsageError
from athena.exchange import UpstreamCall
from athena.model.request import Request
from athena.recording import lines
from athena.recording.lines import Recording
from athena.recording.replay import NO_CHANGES, Changes, Moved, Replayed, replay
from athena.serving.record import RequestRecord

_KINDS: dict[type[lines.Happened], Literal["attempt", "head", "read", "end", "tick", "keep_alive", "stop", "told"]] = {
    lines.Attempt: "attempt",
    lines.UpstreamHead: "head",
    lines.Read: "read",
    lines.AttemptEnd: "end",
    lines.Tick: "tick",
    lines.KeptAlive: "keep_alive",
    lines.Stopped: "stop",
    lines.NotKept: "told",
}


def replay_or_retell(recording: Recording, changes: Changes = NO_CHANGES, *, is_open: bool = False) -> Replayed:
    """Serve it again where it was served; else as it was. Raises what `replay` raises, and UsageError for changes to an
    exchange that was not served."""
    if recording.header.kind == "served":
        return replay(recording, changes, is_open=is_open)
    if changes != NO_CHANGES:
        raise UsageError(f"this exchange was {recording.header.kind}, not served: other settings would change nothing")
    return retold(recording)


def retold(recording: Recording) -> Replayed:
    """The steps of a recording, from its own lines."""
    steps: list[Moved] = []
    calls: list[UpstreamCall] = []
    paths: list[str] = []
    for line in recording.happened:
        if isinstance(line, lines.ClientHead):
            last = _last(steps, line.t)
            steps[-1] = msgspec.structs.replace(last, client_status=line.status, client_headers=line.headers)
            continue
        if isinstance(line, lines.Write):
            last = _last(steps, line.t)
            steps[-1] = msgspec.structs.replace(last, output=last.output + line.body.data)
            continue
        if isinstance(line, lines.Attempt):
            calls.append(UpstreamCall(line.path, line.headers, line.body.data))
            paths.append(line.path)
        steps.append(_step(recording, line, len(calls)))
    record = recording.outcome.record
    return Replayed(
        request=Request(
            dialect=recording.request.dialect, model=str(record.get("model", "")), stream=bool(record.get("stream"))
        ),
        steps=steps,
        calls=calls,
        paths=paths,
        request_losses=(),
        record=RequestRecord(request_id=recording.header.id),
    )


def _last(steps: list[Moved], t: float) -> Moved:
    """The step to which something that left belongs; one of its own where nothing came in."""
    if not steps:
        steps.append(Moved(kind="told", t=t, attempt=0))
    return steps[-1]


def _step(recording: Recording, line: lines.Happened, attempt: int) -> Moved:
    note, data, status = "", b"", 0
    if isinstance(line, lines.Attempt):
        target = recording.settings.targets[line.target]
        note = f"{target.upstream}/{target.model}"
    elif isinstance(line, lines.UpstreamHead):
        status = line.status
    elif isinstance(line, lines.Read):
        data = line.body.data
    elif isinstance(line, lines.AttemptEnd) and line.failure is not None:
        note = line.failure.message
    elif isinstance(line, lines.Stopped):
        note = line.reason
    return Moved(kind=_KINDS[type(line)], t=line.t, attempt=attempt, data=data, note=note, status=status)

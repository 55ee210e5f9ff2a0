"""The head of an exchange: everything but its bodies, reads, writes and settings, as the event loop knew it.

It is one piece of memory. It becomes a recording when somebody reads it; on disk it stays what it is.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from athena.recording import lines
from athena.recording.lines import since
from athena.recording.secrets import NO_SECRETS, Mask
from athena.serving.record import FIELDS, fields_of
from athena.serving.sessions import Belonging
from athena.serving.tap import Occurrence
from athena.typed_values import reader


class ExchangeHead(msgspec.Struct, frozen=True, array_like=True):
    """What a head says."""

    id: str
    athena: str
    at: float
    clock: float
    kind: lines.ExchangeKind
    method: str
    path: str
    query: str
    headers: dict[str, str]
    happened: list[tuple[int, int, float, Any]]
    """For each: the step that it stands before, its `Occurrence`, when, and what."""
    record: Any
    """The values of the record's fields, in the order of `FIELDS` of the version that made it."""
    details: Any
    seals: Any = None
    """`Seals`, where anything was sealed or opened."""
    kept: Any = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ExchangeHead).decode
_read_json = reader(ExchangeHead)
_read_seals = reader(lines.Seals)
_read_failure = reader(lines.Failure)
_JSON = b"["


def encoded_head(head: tuple[Any, ...]) -> bytes:
    """The fields of a `ExchangeHead`, encoded."""
    try:
        return _encode(head)
    except UnicodeEncodeError:
        # Half of a character, which an upstream wrote into an error: JSON can say that.
        return json.dumps(msgspec.to_builtins(head)).encode()


def read_head(head: bytes) -> ExchangeHead:
    """The head that was encoded so."""
    if head.startswith(_JSON):
        return _read_json(json.loads(head))
    return _decode(head)


def bare_recording(
    head: ExchangeHead, whose: Belonging, fields: tuple[str, ...] = FIELDS, mask: Mask = NO_SECRETS
) -> lines.Recording:
    """A head as a recording without settings, bodies, reads and writes."""
    record = fields_of(fields, head.record)
    return lines.Recording(
        settings=lines.Settings(kept=mask.value(head.kept) if head.kept is not None else None),
        header=lines.Header(
            id=head.id,
            athena=head.athena,
            at=round(head.at, 6),  # heads of earlier versions have more digits
            clock=head.clock,
            kind=head.kind,
            program=mask.text(whose.program),
            session=mask.text(whose.session),
            agent=mask.text(whose.agent),
            parent=mask.text(whose.parent),
            response=head.kept["id"] if head.kept is not None else "",
        ),
        seals=_read_seals(head.seals) if head.seals is not None else lines.Seals(),
        request=lines.ClientRequest(
            body=lines.Payload(),
            method=head.method,
            path=mask.text(head.path),
            query=mask.text(head.query),
            dialect=record.get("dialect", ""),
            headers=mask.headers(head.headers),
        ),
        happened=tuple(_line(Occurrence(kind), since(head.clock, now), what, mask) for _, kind, now, what in head.happened),
        outcome=lines.RecordedOutcome(mask.value(record), mask.value(head.details)),
    )


def _line(kind: Occurrence, t: float, what: Any, mask: Mask) -> lines.Happened:
    """What happened, as a line."""
    match kind:
        case Occurrence.ATTEMPT:
            target, path, headers, created, input_tokens = what
            return lines.Attempt(t, target, mask.text(path), mask.headers(headers), lines.Payload(), created, input_tokens)
        case Occurrence.UPSTREAM_HEAD:
            return lines.UpstreamHead(t, what[0], mask.headers(what[1]))
        case Occurrence.CLIENT_HEAD:
            return lines.ClientHead(t, what[0], mask.headers(what[1]))
        case Occurrence.ATTEMPT_END:
            return lines.AttemptEnd(t, _failure(what, mask))
        case Occurrence.STOPPED:
            return lines.Stopped(t, what)
        case Occurrence.NOT_KEPT:
            changed, failure = what
            return lines.NotKept(t, mask.value(changed), _failure(failure, mask))
        case Occurrence.TICK:
            return lines.Tick(t)
        case Occurrence.KEPT_ALIVE:
            return lines.KeptAlive(t)


def _failure(told: Any, mask: Mask) -> lines.Failure | None:
    if told is None:
        return None
    failure = _read_failure(told)
    return msgspec.structs.replace(failure, message=mask.text(failure.message))

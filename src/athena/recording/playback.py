"""Recorded answers for new requests: which one fits, turn by turn.

A request gets the answer of the recorded request that is most like it: the same JSON first, then one that also asked for a
stream, or also did not, of these one of the same turn (as many messages) of the same conversation, of these one to the same
model, then the next by the recorded times that was not used yet. Nothing is played for a path that was never asked.

Where a gateway's clients and its upstream were asked the same at the same path, the names of the headers tell who asks: an
agent sends other ones than a gateway does. It gets what clients were told, and a gateway what the upstream said.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from athena.recording import lines
from athena.recording.lines import Recording

_TURNS = ("messages", "input", "contents")


class Played(msgspec.Struct, kw_only=True):
    """One recorded answer."""

    id: str
    side: Literal["upstream", "gateway"]
    """Who gave it."""
    path: str
    status: int
    headers: dict[str, str]
    pieces: list[tuple[float, bytes]]
    """Seconds since the request was sent, and what came then."""
    is_cut: bool = False
    """The connection broke after the last piece."""
    asked: Any = None
    asked_with: frozenset[str] = frozenset()
    """The names of the request's headers, as far as they were recorded."""
    used: int = 0

    def strangeness(self, names: Collection[str]) -> int:
        """By how many headers a request differs from the recorded one; 0 where they are not known."""
        return len(self.asked_with.symmetric_difference(names)) if self.asked_with else 0


class Playlist:
    """The answers of some recordings: what upstreams said, and what clients were told."""

    def __init__(self, recordings: list[Recording]) -> None:
        self.answers: list[Played] = []
        recordings = sorted(recordings, key=lambda recording: recording.header.at)
        for recording in recordings:
            self.answers += _upstream_answers(recording)
        for recording in recordings:
            told = _client_answer(recording)
            if told is not None:
                self.answers.append(told)
        self.models = list(
            dict.fromkeys(
                name
                for recording in recordings
                for name in (
                    *(target.model for target in recording.settings.targets),
                    str(recording.outcome.record.get("model", "")),
                )
                if name
            )
        )

    def answer(self, path: str, body: bytes, headers: Collection[str] = ()) -> Played | None:
        """The answer to play; None where nothing was recorded for this path. `headers` are the names of the request's."""
        wanted = _decoded(body)
        candidates = [(_likeness(each.asked, wanted), each) for each in self.answers if _same_path(each.path, path)]
        if not candidates:
            return None
        most = max(likeness for likeness, _ in candidates)
        fitting = [each for likeness, each in candidates if likeness == most]
        side = min(fitting, key=lambda each: each.strangeness(headers)).side
        best = min((each for each in fitting if each.side == side), key=lambda each: each.used)
        best.used += 1
        return best


def _same_path(recorded: str, path: str) -> bool:
    """Base URLs differ in what stands before the endpoint."""
    ours, theirs = recorded.partition("?")[0].rstrip("/"), path.partition("?")[0].rstrip("/")
    return ours == theirs or _endpoint(ours) == _endpoint(theirs)


def _endpoint(path: str) -> str:
    for end in ("/chat/completions", "/messages", "/responses"):
        if path.endswith(end):
            return end
    return path[path.rfind("/models/") :] if "/models/" in path else path


def _likeness(recorded: Any, asked: Any) -> tuple[bool, bool, bool, int, bool]:
    """Is it the same JSON, of the same kind (a stream or not), the same turn; how much of the conversation is the same; and is
    the model the same? What stands first counts most: a client that reads a stream cannot read a whole answer."""
    ours, theirs = _turns(recorded), _turns(asked)
    same = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        same += 1
    is_same_kind = bool(_field(recorded, "stream")) == bool(_field(asked, "stream"))
    is_same_model = _field(recorded, "model") == _field(asked, "model")
    return recorded == asked, is_same_kind, len(ours) == len(theirs), same, is_same_model


def _field(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def _turns(body: Any) -> list[Any]:
    for name in _TURNS:
        turns = _field(body, name)
        if isinstance(turns, list):
            return turns
    return []


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        return None


def _upstream_answers(recording: Recording) -> list[Played]:
    found: list[Played] = []
    sent = 0.0
    for line in recording.happened:
        if isinstance(line, lines.Attempt):
            sent = line.t
            asked = _decoded(line.body.data)
            found.append(
                Played(
                    id=recording.header.id,
                    side="upstream",
                    path=line.path,
                    status=0,
                    headers={},
                    pieces=[],
                    asked=asked,
                    asked_with=frozenset(line.headers),
                )
            )
        elif not found:
            continue
        elif isinstance(line, lines.UpstreamHead):
            found[-1].status, found[-1].headers = line.status, _plain(line.headers)
        elif isinstance(line, lines.Read):
            found[-1].pieces.append((line.t - sent, line.body.data))
        elif isinstance(line, lines.AttemptEnd):
            found[-1].is_cut = line.failure is not None
    return found


def _client_answer(recording: Recording) -> Played | None:
    head = next((line for line in recording.happened if isinstance(line, lines.ClientHead)), None)
    if head is None:
        return None
    return Played(
        id=recording.header.id,
        side="gateway",
        path=recording.request.path,
        status=head.status,
        headers=_plain(head.headers),
        pieces=[(line.t, line.body.data) for line in recording.happened if isinstance(line, lines.Write)],
        asked=_decoded(recording.request.body.data),
        asked_with=frozenset(recording.request.headers),
    )


def _plain(headers: dict[str, str]) -> dict[str, str]:
    """What of a head still holds: the bytes were recorded as they were read, unpacked and without their frames."""
    framing = ("content-length", "transfer-encoding", "content-encoding", "connection", "keep-alive", "date")
    return {name: value for name, value in headers.items() if name not in framing}

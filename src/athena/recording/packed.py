"""One request in as few objects as hold it: what the archive's thread gets, and what a recording is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from athena.recording import lines
from athena.recording.heads import bare_recording, read_head
from athena.recording.parted import About, Parted, Streams
from athena.recording.secrets import Mask, masks
from athena.recording.served_by import ServedBy, SettingsMemo
from athena.recording.steps import Steps
from athena.serving.sessions import Belonging, session_in
from athena.serving.targets import Target


class PackedExchange:
    """One request, whole. Nothing is done with it before somebody looks."""

    __slots__ = (
        "about", "bodies", "head", "is_special", "key", "kind", "name", "served_by", "steps", "targets",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        kind: lines.ExchangeKind,
        *,
        is_special: bool,
        head: bytes,
        about: tuple[Any, ...],
        bodies: list[bytes],
        steps: Steps,
        served_by: ServedBy,
        targets: tuple[Target, ...],
        key: str | None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.is_special = is_special
        """Is it kept longer than others?"""
        self.head = head
        self.about = about
        """Time of day, key, dialect, upstream and model, and whose it is as its headers say."""
        self.bodies = bodies
        """The client's, and each attempt's."""
        self.steps = steps
        self.served_by = served_by
        self.targets = targets
        """All that might have been asked, whose secrets nobody may read."""
        self.key = key
        """The one that the client sent."""

    @property
    def body(self) -> bytes:
        """The client's."""
        return self.bodies[0]

    # -- when somebody reads it ------------------------------------------------------------------------------------------------

    def whose(self) -> Belonging:
        """The client and the session that it belongs to."""
        known: Belonging = self.about[-1]
        if known.session:
            return known
        session = session_in(self.body)
        return msgspec.structs.replace(known, session=session) if session else known

    def made(self, secrets: Iterable[str]) -> lines.Recording:
        """The recording, without credentials."""
        return self.parted(secrets).whole()

    def parted(self, secrets: Iterable[str], memo: SettingsMemo | None = None) -> Parted:
        """The same in parts, which takes less time. `memo` remembers settings from one request to the next."""
        hidden = (*secrets, self.key or "", *[secret for target in self.targets for secret in target.secrets])
        mask = masks(hidden)
        streams, whose = self.steps.streams(), self.whose()
        at, key, dialect, upstream, model, said = self.about
        # To look at all that there is takes less than to look at each part of it: most requests hold no secret at all.
        pieces = [self.head, *self.bodies, streams.data, streams.texts, *self.steps.around()]
        if whose is not said:
            pieces.append(whose.session.encode("utf-8", "surrogatepass"))
        if mask.is_plain and not mask.finds_in(pieces) and not self.steps.may_hide(mask, streams.texts):
            head, bodies = self.head, self.bodies
        else:
            head, bodies, streams, whose = self._masked(mask, streams, whose)
        return Parted(
            head=head,
            about=About(self.name, at, self.kind, self.is_special, whose, key, dialect, upstream, model),
            settings=self.served_by.written(hidden, mask, memo),
            bodies=bodies,
            streams=streams,
        )

    def _masked(self, mask: Mask, streams: Streams, whose: Belonging) -> tuple[bytes, list[bytes], Streams, Belonging]:
        """Head, bodies, streams, and whose it is, without secrets."""
        head, steps = self.head, self.steps
        if mask.finds_in((streams.data, streams.texts, *steps.around())) or steps.may_hide(mask, streams.texts):
            # Stream by stream: a secret may be cut into pieces.
            reads, writes = streams.pieces()
            streams = Streams.of(0.0, [], steps.times, mask.pieces(reads), mask.pieces(writes))
        if not mask.is_plain or mask.finds(head):
            told = read_head(head)
            head = msgspec.json.encode(bare_recording(told, whose, mask=mask))
            streams = msgspec.structs.replace(streams, clock=told.clock, places=[place for place, *_ in told.happened])
        whose = Belonging(*map(mask.text, msgspec.structs.astuple(whose)))
        return head, [mask.data(body) for body in self.bodies], streams, whose

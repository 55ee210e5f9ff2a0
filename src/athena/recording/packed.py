"""One request in as few objects as hold it: what the archive's thread gets, and what a recording is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from athena.recording import lines
from athena.recording.heads import bare_recording, read_head
from athena.recording.parted import About, Parted, Streams
from athena.recording.searched import SearchedBody
from athena.recording.secrets import Mask, masks
from athena.recording.served_by import ServedBy, SettingsMemo
from athena.recording.steps import Steps
from athena.serving.sessions import Belonging, session_in
from athena.serving.targets import Target

_with = msgspec.structs.replace


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

    def whose(self, body: SearchedBody | None = None) -> Belonging:
        """The client and the session that it belongs to. `body` is the client's, where it was searched before."""
        known: Belonging = self.about[-1]
        if known.session:
            return known
        session = session_in(self.body, body.holds if body is not None else None)
        return _with(known, session=session) if session else known

    def made(self, secrets: Iterable[str]) -> lines.Recording:
        """The recording, without credentials."""
        return self.parted(secrets).whole()

    def parted(self, secrets: Iterable[str], memo: SettingsMemo | None = None) -> Parted:
        """The same in parts, which takes less time. `memo` remembers settings from one request to the next."""
        hidden = self.hidden(secrets)
        mask = masks(hidden)
        found = self.unmasked(self.served_by.written(hidden, mask, memo))
        return found if mask.is_plain and not self.may_hold(mask, found) else self._masked(mask, found)

    def hidden(self, secrets: Iterable[str]) -> tuple[str, ...]:
        """What nobody may read in it: these, the client's key, and the secrets of all targets."""
        return (*secrets, self.key or "", *[secret for target in self.targets for secret in target.secrets])

    def unmasked(self, settings: bytes, body: SearchedBody | None = None) -> Parted:
        """In parts as they are, secrets and all; the settings are given without any. Never to be kept so. `body` is the
        client's, where it was searched before."""
        at, key, dialect, upstream, model, _ = self.about
        return Parted(
            head=self.head,
            about=About(self.name, at, self.kind, self.is_special, self.whose(body), key, dialect, upstream, model),
            settings=settings,
            bodies=self.bodies,
            streams=self.steps.streams(),
        )

    def may_hold(self, mask: Mask, found: Parted) -> bool:
        """May any of these secrets, which are plain, be in its parts?"""
        # To look at all that there is takes less than to look at each part of it: most requests hold no secret at all.
        streams, whose = found.streams, found.about.whose
        pieces = [self.head, *self.bodies, streams.data, streams.texts, *self.steps.around()]
        if whose is not self.about[-1]:
            pieces.append(whose.session.encode("utf-8", "surrogatepass"))
        return mask.finds_in(pieces) or self.steps.may_hide(mask, streams.texts)

    def _masked(self, mask: Mask, found: Parted) -> Parted:
        """The same without secrets."""
        head, steps, streams, whose = self.head, self.steps, found.streams, found.about.whose
        if mask.finds_in((streams.data, streams.texts, *steps.around())) or steps.may_hide(mask, streams.texts):
            # Stream by stream: a secret may be cut into pieces.
            reads, writes = streams.pieces()
            streams = Streams.of(0.0, [], steps.times, mask.pieces(reads), mask.pieces(writes))
        if not mask.is_plain or mask.finds(head):
            told = read_head(head)
            head = msgspec.json.encode(bare_recording(told, whose, mask=mask))
            streams = _with(streams, clock=told.clock, places=[place for place, *_ in told.happened])
        whose = Belonging(*map(mask.text, msgspec.structs.astuple(whose)))
        bodies = [mask.data(body) for body in self.bodies]
        return _with(found, head=head, about=_with(found.about, whose=whose), bodies=bodies, streams=streams)

"""How anything watches: one protocol for the request line, the numbers, raw streams, recordings and whatever comes later.

A `Watcher` is asked once for each request and gives a `Tap`, or None where it does not want to see that request. Where no one
wants to see the bytes, nothing is done for them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from athena.dialects.plain_reads import SplicedRecord
from athena.errors import AthenaError
from athena.exchange import Head, Options, UpstreamCall
from athena.model.events import Event
from athena.model.request import Kept, Request
from athena.serving.record import RequestRecord
from athena.serving.settings import Retries
from athena.serving.targets import Target

if TYPE_CHECKING:
    from athena.serving.shared import AnswerSettings

Moment = Literal["tick", "keep_alive"]
"""`tick`: the time in which a prompted model may write further calls is over. `keep_alive`: the client has waited."""


class Occurrence(enum.Enum):
    """What happens to a request besides reads and writes. The numbers are part of the form of archives of recordings."""

    ATTEMPT = 1
    UPSTREAM_HEAD = 2
    ATTEMPT_END = 3
    TICK = 4
    KEPT_ALIVE = 5
    STOPPED = 6
    NOT_KEPT = 7
    CLIENT_HEAD = 8


MOST_NOTES = 3 * 64
"""Places in a list of notes after which `gather` is called."""
MUCH = 64 * 1024
"""Bytes of one body or read after which it is called as well."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How a request came in, and by what it is served."""

    now: float
    """What the driver's clock says."""
    wall: float
    """The time of day, in seconds since 1970."""
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """The client's, by lower-case name, its credentials among them."""
    body: bytes
    """The client's, as it came; empty unless a watcher wants bodies."""
    targets: tuple[Target, ...]
    answers: AnswerSettings
    retries: Retries
    kept: Kept | None = None
    """What is kept of the answer, where anything is."""
    correct: bool
    """Are requests that an upstream refuses for their shape corrected?"""


class Tap:
    """What watches one request. Every method does nothing unless a subclass says otherwise. None should raise: a tap that
    does is told `dropped`, and nothing more of that request.

    `now` is always what the driver's clock said when it happened.
    """

    sees_only_end = False
    """Is nothing but `over` to be called, and `dropped`?"""
    sees_bytes = False
    """Are `upstream_bytes`, `events` and `client_bytes` to be called?"""
    sees_events = True
    """False: not `events`."""
    hears_answered = False
    """Is `answered` to be called? Found out from the class."""

    def __init_subclass__(cls) -> None:
        cls.hears_answered = cls.answered is not Tap.answered

    def asked(self, asked: Asked) -> None:
        """The client's request: how it came in and by what it is served."""

    def chosen(self, targets: tuple[Target, ...], refusal: AthenaError | None) -> None:
        """The targets that may be asked, by their health, where these are not all that `asked` named, or in another order; or
        why none may."""

    def trying(self, target: Target, left_out: tuple[str, ...]) -> None:
        """This target is to be asked without what it is known to refuse."""

    def options(self, options: Options) -> Options:
        """What an exchange is told. A tap may return the same with envelope and store wrapped, to see their use."""
        return options

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        """A request that goes to an upstream; there may be several. `path` is the one on the upstream's host, and `headers` are
        all that it gets, credentials among them."""

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        """An upstream's answer begins."""

    def upstream_bytes(self, data: bytes, now: float) -> None:
        """The next bytes of its body, as they came."""

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        """Its answer ended, or there is none; `failure` says why when it did not end by itself."""

    def moment(self, moment: Moment, now: float) -> None:
        """Time has passed, and something is done about it."""

    def stopped(self, reason: str, now: float) -> None:
        """The request is ended before its answer is."""

    def not_kept(self, changed: Mapping[str, Any] | None, failure: AthenaError | None, now: float) -> None:
        """The response was to be kept and could not be: fields of it say so, or the request fails."""

    def events(self, events: tuple[Event, ...]) -> None:
        """The events that were understood of the last bytes."""

    def client_head(self, head: Head, now: float) -> None:
        """The client's answer begins."""

    def client_bytes(self, data: bytes, now: float) -> None:
        """The next bytes of its body."""

    def passed(self, data: bytes, output: bytes, now: float, spliced: tuple[bytes, SplicedRecord] | None = None) -> None:
        """One more read of plain text and what leaves for it, at one moment: both of the above in one call. `spliced` are its
        texts, and the record that both follow from, where nothing else is needed."""
        self.upstream_bytes(data, now)
        self.client_bytes(output, now)

    def answered(self) -> None:
        """An upstream's answer is over, or given up; another one may follow."""

    def over(self, record: RequestRecord) -> None:
        """The request is over, and this is what is known of it."""

    def dropped(self) -> None:
        """One of these methods raised, so this tap watches no longer: give back what it holds."""


class NotingTap(Tap):
    """A tap that sees bytes, no events, and does not hear `answered`. Where it watches a request alone, others write down what
    happens instead of calling the methods that say so: `asked_as`, `notes`, and in `size` how many bytes they hold.

    Each note has three places, the first of which says when:

    - what came, and what left for it, either of which may be empty;
    - the texts of a read, and the `SplicedRecord` that both what came and what left follow from;
    - the parts of a read, as `BurstParts` has them, and nothing; nothing and the same list: all that left for these parts;
    - ATTEMPT, and a `SentCall`; UPSTREAM_HEAD, and status and headers; ATTEMPT_END of an answer that ended by itself, and None;
      CLIENT_HEAD, and the head.
    """

    sees_bytes = True
    sees_events = False
    asked_as: Asked | None = None
    notes: list[Any]
    size = 0
    created = 0
    input_tokens = 0
    """What the next attempt is told."""

    def gather(self) -> None:
        """There are so many notes, or bytes in them, that they are to be put together and counted."""


class SentCall(msgspec.Struct, frozen=True):
    """A request that went to an upstream."""

    target: Target
    body: bytes
    path: str
    headers: list[tuple[bytes, bytes]]
    created: int
    input_tokens: int


class EndTap(Tap):
    """Told how every request ended, and nothing else: one object is the watcher and the tap of all of them."""

    sees_only_end = True

    def wants_bodies(self) -> bool:
        """Never: what is told at the end holds no body."""
        return False

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap:
        return self


class Watcher(Protocol):
    """Asked once for each request whether it wants to watch it."""

    def wants_bodies(self) -> bool:
        """Are the bodies of clients' requests to be kept until the taps have seen them?"""

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap | None:
        """What is to watch this request, if anything. `key` is the one that the client sent: it may go to the upstream."""

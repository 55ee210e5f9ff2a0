"""What was learnt from refusals: a request that an upstream refuses for its shape is asked again without it, and remembered.

What is learnt changes how later requests are served, so it needs evidence that no single request can make up:

- The error names the feature, and the request holds it (`refusals`).
- The same request without it succeeds.
- Both have happened to two requests of the same client. For all others it takes the requests of a second client, too: nothing
  that one client sends changes how another is served. A gateway without keys has one client.

    nothing known --confirmed--> doubted --confirmed--> learnt, for `keep_s` seconds
    after that one confirmation makes it learnt again, for as long; then it is forgotten
    `forget` forgets it at once, evidence and all

Until something is learnt, each refused request is asked again by itself.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from athena.exchange import Exchange, Route
from athena.model.request import Request
from athena.serving.refusals import TOOLS, corrected_route, is_allowed, refused_features
from athena.serving.targets import Target

_ROUNDS = 3
"""How often one request is corrected. Servers name one fault at a time, so a request that holds several is refused for one
after another; none is corrected twice."""
_NEWS = frozenset(("context_length", "content_policy", "rate_limit", "overloaded", "timeout", "auth", "billing", "permission"))
_REMEMBERED = 4096
_CLIENTS = 16
_ENOUGH = 2
"""Confirmations of one client, and clients, that make something learnt."""


class Lesson(msgspec.Struct, frozen=True):
    """One thing that is known about a model at an upstream, for everybody who asks it."""

    upstream: str
    model: str
    feature: str
    expires_s: float
    """Seconds until it is tried again."""


class _Evidence(msgspec.Struct):
    until: float
    confirmed: dict[str, int] = {}
    """How many requests of each client."""

    @property
    def convinced(self) -> bool:
        """Is it enough for any client?"""
        return any(map(self.convinces, self.confirmed))

    def convinces(self, client: str) -> bool:
        """Is it enough to serve this client differently?"""
        clients = sum(count >= 1 for count in self.confirmed.values())
        return self.confirmed.get(client, 0) >= _ENOUGH or clients >= _ENOUGH


class Learnt:
    """What one gateway learnt since its configuration was loaded. `clock` tells seconds; `on_learnt` gets upstream,
    model and feature, `on_corrected` upstream and feature for every request that was answered only when it was corrected."""

    def __init__(
        self,
        clock: Callable[[], float],
        on_learnt: Callable[[str, str, str], None] = lambda upstream, model, feature: None,
        on_corrected: Callable[[str, str], None] = lambda upstream, feature: None,
        *,
        keep_s: float = 3600.0,
        correct: bool = True,
    ) -> None:
        self._clock = clock
        self._on_learnt = on_learnt
        self._on_corrected = on_corrected
        self._keep_s = keep_s
        self.corrects = correct
        """May what is refused for its shape be corrected? Tools have a setting of their own."""
        self._known: dict[tuple[str, str], dict[str, _Evidence]] = {}

    def trial(self, target: Target, request: Request, client: str = "") -> Trial:
        """How this target is to be asked now, and what follows when it refuses. `client`: the name of its key."""
        return Trial(self, target, request, client, self.known(target, client) if self.has_lessons else ())

    @property
    def has_lessons(self) -> bool:
        """Is anything known about any target?"""
        return bool(self._known)

    def known(self, target: Target, client: str) -> tuple[str, ...]:
        """What is left out from the start."""
        evidence = self._known.get((target.upstream, target.model))
        if evidence is None:
            return ()
        now = self._clock()
        return tuple(
            feature
            for feature, found in evidence.items()
            if now < found.until and found.convinces(client) and self.may_correct(feature, target)
        )

    def may_correct(self, feature: str, target: Target) -> bool:
        """Does the configuration let this be corrected? Tools have a setting of their own."""
        return (self.corrects or feature == TOOLS) and is_allowed(feature, target)

    def confirm(self, target: Target, features: tuple[str, ...], client: str) -> None:
        """A request that was refused for these succeeded without them."""
        now = self._clock()
        evidence = self._known.setdefault((target.upstream, target.model), {})
        for feature in features:
            self._on_corrected(target.upstream, feature)
            found = evidence.get(feature)
            if found is not None and now >= found.until + self._keep_s:
                found = None  # evidence of long ago is none
            if found is None:
                found = evidence[feature] = _Evidence(now + self._keep_s)
            elif now >= found.until:
                # What was learnt and is refused again needs one confirmation; a mere doubt has been forgotten.
                found.confirmed = dict.fromkeys(found.confirmed, 1) if found.convinced else {}
            before = now < found.until and found.convinces(client)
            if client in found.confirmed or len(found.confirmed) < _CLIENTS:
                found.confirmed[client] = found.confirmed.get(client, 0) + 1
            found.until = now + self._keep_s
            if found.convinces(client) and not before:
                self._on_learnt(target.upstream, target.model, feature)
        self._forget_old(now)

    def lessons(self) -> list[Lesson]:
        """All that is served differently now, for one client or for everybody."""
        now = self._clock()
        return [
            Lesson(upstream, model, feature, found.until - now)
            for (upstream, model), evidence in self._known.items()
            for feature, found in evidence.items()
            if now < found.until and found.convinced
        ]

    def forget(self, upstream: str = "", model: str = "") -> list[Lesson]:
        """Begin anew with all upstreams, with one, or with one of its models; what was learnt about them.

        Evidence that was not enough yet goes as well. Requests under way end as they began.
        """
        known = [key for key in self._known if upstream in ("", key[0]) and model in ("", key[1])]
        lessons = [lesson for lesson in self.lessons() if (lesson.upstream, lesson.model) in known]
        for key in known:
            del self._known[key]
        return lessons

    def _forget_old(self, now: float) -> None:
        while sum(map(len, self._known.values())) > _REMEMBERED:
            oldest = min(self._known, key=lambda key: min(found.until for found in self._known[key].values()))
            del self._known[oldest]


class Trial:
    """One request at one target: asked, and asked again without what is refused.

    `route` is how to ask now. After a failure `corrects` says whether to ask once more; after an answer `answered` is due.
    """

    _tried: tuple[str, ...] = ()
    """What was refused and left out since."""
    _rounds = 0

    def __init__(self, learnt: Learnt, target: Target, request: Request, client: str, known: tuple[str, ...] = ()) -> None:
        """`known` is what is left out from the start."""
        self._learnt = learnt
        self._target = target
        self._request = request
        self._client = client
        self.corrections = known
        """What is left out of the request, learnt or just refused."""
        self.route: Route = corrected_route(target, known) if known else target.route

    def corrects(self, exchange: Exchange | None) -> bool:
        """Was the request refused for its shape, so that `route` is now another one that is worth a try?"""
        error = exchange.error if exchange is not None else None
        if exchange is None or error is None or self._rounds >= _ROUNDS:
            return False
        refused = refused_features(error, self._request, exchange.call.body)
        fresh = tuple(
            feature
            for feature in refused
            if feature not in self.corrections and self._learnt.may_correct(feature, self._target)
        )
        if not fresh:
            return False
        self._rounds += 1
        self._tried += fresh
        self.corrections += fresh
        self.route = corrected_route(self._target, self.corrections)
        return True

    def was_in_vain(self, exchange: Exchange | None) -> bool:
        """Did the corrected request fail for reasons that are no better than the first? Then the client gets the first.

        A conversation that is too long, or an upstream that has no time, is news: agents act on it.
        """
        error = exchange.error if exchange is not None else None
        return bool(self._tried) and (error is None or error.kind not in _NEWS)

    def answered(self) -> None:
        """The upstream answered: what was refused and left out is evidence."""
        if self._tried:
            self._learnt.confirm(self._target, self._tried, self._client)

"""Which of a rule's targets is asked first, and in which order the others follow. Pure.

The rules, in the order in which they bite:

1. Routes that are left out for their answers (`RouteHealth`) stand last. Where all of them are, none is.
2. When it is time for a canary, a request with tools goes first to a route that is left out. The others follow it: where it
   fails before the client has seen anything, they are asked.
3. A session stays with the target that answered it, as long as that one is in: its caches are there.
4. `prefer` chooses: the best bad share, time to the first byte, or cost. Those that are as good as equal are one group.
5. Inside that group the weights decide, by the session's name, or the request's where it has no session. So all replicas of a
   gateway choose the same target for one session without talking to each other. Without weights it is the first as written.

Fallbacks are asked in their turn, after all of those.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from athena.bounded_cache import BoundedCache
from athena.serving.route_health import RouteHealth
from athena.serving.targets import Target

_REMEMBERED_BYTES = 4 * 1024 * 1024
_SESSION_BYTES = 400
"""About what one remembered session takes."""
_SHARE_STEP = 0.05
"""Bad shares that differ by less are as good as equal."""
_SPEED_STEP = 1.25
"""So are times to the first byte within this factor of the best."""


class TargetWish(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request decides where it goes."""

    request_id: str
    model: str
    """The client's name of it."""
    client: str
    """The name of its key: sessions of different keys are different ones."""
    session: str
    has_tools: bool
    streamed: bool


class TargetChoice(NamedTuple):
    """Targets in the order in which they are asked, and what chose the first."""

    targets: tuple[Target, ...]
    why: str


class Chooser:
    """Orders targets. `routes` says how they did; `is_up` whether an upstream is asked at all."""

    def __init__(self, routes: RouteHealth, is_up: Callable[[str], bool]) -> None:
        self.routes = routes
        self._is_up = is_up
        self._sessions: BoundedCache[tuple[str, str, str], tuple[str, str]] = BoundedCache(_REMEMBERED_BYTES)
        """By client, its name of the model, and session: upstream and model that answered it last."""

    def choose(self, targets: tuple[Target, ...], wish: TargetWish) -> TargetChoice:
        """The targets of a rule, which come as they are written."""
        if len(targets) == 1:
            return TargetChoice(targets, "")
        routes = self.routes
        out = [target for target in targets if routes.is_out(target.upstream, target.model)]
        if len(out) == len(targets):
            out = []
        inside = [target for target in targets if target not in out] if out else list(targets)
        sharing, why = self._ordered([target for target in inside if target.place.shares], wish)
        ordered = [*sharing, *(target for target in inside if not target.place.shares)]
        canary = self._canary(out, ordered[0], targets) if out and wish.has_tools else None
        if canary is not None:
            return TargetChoice((canary, *ordered, *(target for target in out if target is not canary)), "canary")
        return TargetChoice((*ordered, *out), why)

    def served(self, target: Target, choice: TargetChoice, wish: TargetWish) -> None:
        """This target answers the request: later ones of its session go there, too."""
        place = target.place
        if not wish.session or not place.shares or not place.sticky or choice.why == "canary":
            return
        if sum(each.place.shares for each in choice.targets) > 1:
            size = _SESSION_BYTES + len(wish.session) + len(wish.model)
            self._sessions.put((wish.client, wish.model, wish.session), (target.upstream, target.model), size)

    def _canary(self, out: Sequence[Target], first: Target, written: tuple[Target, ...]) -> Target | None:
        """A route that is left out, would be asked before the present first one if it were in, and is to be tried now."""
        for target in out:
            is_wanted = target.place.shares or written.index(target) < written.index(first)
            if is_wanted and self._is_up(target.upstream) and self.routes.take_canary(target.upstream, target.model):
                return target
        return None

    def _ordered(self, sharing: list[Target], wish: TargetWish) -> tuple[list[Target], str]:
        if len(sharing) < 2:
            return sharing, "order"
        prefer = sharing[0].place.prefer
        ranks = self._ranks(sharing, wish)
        is_weighted = any(target.place.weight is not None for target in sharing)
        draws = [_draw(target, wish) if is_weighted else float(place) for place, target in enumerate(sharing)]
        order = sorted(range(len(sharing)), key=lambda index: (ranks[index], draws[index]))
        ordered = [sharing[index] for index in order]
        why: str = prefer if prefer != "order" else "weight" if is_weighted else "order"
        if wish.session and sharing[0].place.sticky:
            kept = self._sessions.get((wish.client, wish.model, wish.session))
            home = next((target for target in ordered if (target.upstream, target.model) == kept), None)
            if home is not None:
                return [home, *(target for target in ordered if target is not home)], "session"
        return ordered, why

    def _ranks(self, sharing: list[Target], wish: TargetWish) -> list[float]:
        """The group of each target by what the rule prefers; the lowest is best."""
        routes = self.routes
        match sharing[0].place.prefer:
            case "order":
                return [0.0] * len(sharing)
            case "health":
                return [math.floor(routes.bad_share(each.upstream, each.model) / _SHARE_STEP) for each in sharing]
            case "latency":
                times = [routes.first_byte_s(each.upstream, each.model, streamed=wish.streamed) for each in sharing]
                best = min((time for time in times if time is not None), default=0.0)
                # A target without a figure is tried.
                return [0.0 if time is None or time <= best * _SPEED_STEP else time for time in times]
            case "cost":
                return [each.place.cost if each.place.cost is not None else math.inf for each in sharing]


def _draw(target: Target, wish: TargetWish) -> float:
    """A number that is the lowest with a probability in proportion to the target's weight; the same for the same session."""
    weight = 1.0 if target.place.weight is None else target.place.weight
    if weight <= 0:
        return math.inf
    name = "\0".join((wish.client, wish.session or wish.request_id, target.upstream, target.model))
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()
    return -math.log((int.from_bytes(digest, "big") + 1) / 2**64) / weight

"""What the answers of each model at each upstream were worth lately, and whether requests still go there.

A route is one model of one upstream. The same classes are counted that `athena verify` counts (`athena.quality`), over a
sliding window of time. Of the answers to requests with tools the last ones decide:

    state | event                                                                   | next state
    ------|-------------------------------------------------------------------------|-----------
    IN    | `bad_share` of `answers` answers were bad, among the last `answers`      | OUT
    OUT   | `probes` good answers in a row                                          | IN
    OUT   | a bad answer                                                            | OUT, counting the good ones anew

An answer counts only for the state in which its request was sent: streams that began before the route was left out say nothing
about whether it is back. Where several keys use a route, one key's answers are at most half of the evidence against it: what
one client makes a model do takes no route from the others.

Replicas that share a store tell each other what they saw (`evidence`, `hear`). A route begins in state IN, and its turn counts
its changes, so the turn alone says which state it is: the replica with the higher turn is right, and the others follow it. In
the same turn the answers of all count together.

Pure: the clock is handed in. Bounded: so many routes, so many answers of each, and classes from closed lists.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import Enum

import msgspec

from athena.quality import Finding, Found
from athena.serving.record import Judged, RequestRecord
from athena.serving.settings import ToolHealth
from athena.serving.tap import EndTap

_MOST_ROUTES = 1024
"""Clients name models where a rule leaves the name open."""
_SLICES = 10
_SPEED_MEMORY = 0.2
"""How much of the average time to the first byte is the newest one's."""
_OF_THE_UPSTREAM = frozenset(("upstream", "overloaded", "server", "timeout", "rate_limit"))
"""Kinds of errors that a request cannot cause by what it holds."""


class RouteState(Enum):
    """In: requests go there. Out: only canaries do, while there is another target."""

    IN = "in"
    OUT = "out"


class RouteReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one route."""

    upstream: str
    model: str
    state: RouteState
    answers: int
    """In the window of time, with tools or without."""
    found: dict[str, int]
    """Answers by class, such as `cut` or `leak:kimi_k2`, in the same window."""
    judged: int
    bad: int
    """The last answers to requests with tools, and the bad ones among them, since the state began."""
    good_canaries: int
    """In a row, while it is out."""
    first_byte_s: float | None
    """The average of streams, the newest weighing most."""


class RouteAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One answer to a request with tools."""

    at: float
    client: str
    bad: tuple[str, ...]
    """What is wrong with it, of what counts."""

    @property
    def is_bad(self) -> bool:
        """Is anything wrong with it?"""
        return bool(self.bad)


class RouteEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica knows of a route, for the others."""

    upstream: str
    model: str
    turn: int
    answers: tuple[RouteAnswer, ...]
    """Of this turn; their times are those of the clock that was handed in."""
    good_canaries: int
    bad_canaries: int
    why: str
    """What brought the route into this turn's state."""
    version: int
    """Another one after every change."""


OnRouteChange = Callable[[RouteReport, str], None]
"""Told of a route's new state, and why."""


class RouteHealth:
    """The routes of one gateway."""

    def __init__(
        self, settings: ToolHealth, clock: Callable[[], float], on_change: OnRouteChange = lambda report, why: None
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._on_change = on_change
        self._bad = frozenset(map(Finding, settings.bad))
        self._needed = max(1, math.ceil(settings.bad_share * settings.answers)) if settings.bad_share else math.inf
        self._routes: dict[tuple[str, str], _Route] = {}
        """The one that answered last is last."""

    def is_out(self, upstream: str, model: str) -> bool:
        """Is it left out while there is another target?"""
        route = self._routes.get((upstream, model))
        return route is not None and route.state is RouteState.OUT

    def turn(self, upstream: str, model: str) -> int:
        """A number for the present state, to be handed back with what an answer shows."""
        route = self._routes.get((upstream, model))
        return route.turn if route is not None else 0

    def take_canary(self, upstream: str, model: str) -> bool:
        """Is it time for a canary? Then this request is the one, and the next has to wait."""
        route, now = self._routes.get((upstream, model)), self._clock()
        if route is None or route.state is RouteState.IN or now < route.canary_at:
            return False
        route.canary_at = now + self.settings.probe_s
        return True

    def bad_share(self, upstream: str, model: str) -> float:
        """Bad answers as a share of those that are looked at; 0 where nothing is known."""
        route = self._routes.get((upstream, model))
        if route is None:
            return 0.0
        self._forget_old(route)
        bad = sum(answer.is_bad for answer in route.recent) + sum(answer.is_bad for answer in route.heard)
        return bad / max(len(route.recent) + len(route.heard), self.settings.answers // 2)

    def first_byte_s(self, upstream: str, model: str, *, streamed: bool) -> float | None:
        """The average time until an answer begins; None where nothing is known, or what is known is old."""
        route = self._routes.get((upstream, model))
        if route is None or self._clock() - route.answered_at > self.settings.window_s:
            return None
        return route.first_byte_s.get(streamed)

    def note(self, judged: Judged, client: str) -> None:
        """The answer of one attempt. `client` is the name of its key."""
        now, route = self._clock(), self._route(judged.upstream, judged.model)
        route.answered_at = now
        route.counts.add(now, judged.found)
        if judged.first_byte_s is not None:
            known = route.first_byte_s.get(judged.streamed, judged.first_byte_s)
            route.first_byte_s[judged.streamed] = known + _SPEED_MEMORY * (judged.first_byte_s - known)
        if not judged.has_tools or judged.turn != route.turn:
            return
        state = route.state
        bad = tuple(found.label for found in judged.found if self._counts_against(found)) if judged.found else ()
        route.recent.append(RouteAnswer(now, client, bad))
        route.version += 1
        if state is RouteState.OUT:
            route.good_canaries = 0 if bad else route.good_canaries + 1
            route.bad_canaries += bool(bad)
            if bad:
                route.heard_canaries = 0
        elif not bad:
            # One more good answer takes no route out: there is nothing to decide, and what is old is forgotten when it matters.
            if len(route.recent) > self.settings.answers:
                route.recent.popleft()
            return
        self._decide(route, has_bad_news=bool(bad))

    def _decide(self, route: _Route, *, has_bad_news: bool) -> None:
        """Change the state where what is known of the route says so."""
        self._forget_old(route)
        if route.state is RouteState.OUT:
            good = route.good_canaries + route.heard_canaries
            if good >= self.settings.probes:
                self._go(route, route.turn + 1, f"{good} good answers in a row; {_numbers(self._known(route))}")
        elif has_bad_news:
            known = self._known(route)
            if self._evidence(known) >= self._needed:
                why = f"{_numbers(known)}; {self.settings.bad_share:.0%} of {self.settings.answers} is the limit"
                self._go(route, route.turn + 1, why)

    def _known(self, route: _Route) -> list[RouteAnswer]:
        """The last answers of this turn, those that other replicas got included."""
        if not route.heard:
            return list(route.recent)
        return sorted((*route.recent, *route.heard), key=lambda answer: answer.at)[-self.settings.answers :]

    def _counts_against(self, found: Found) -> bool:
        if found.finding not in self._bad:
            return False
        return found.finding is not Finding.ERROR or found.detail in _OF_THE_UPSTREAM

    def _evidence(self, known: list[RouteAnswer]) -> float:
        """Bad answers, of one client at most half of those that are needed where there are several clients."""
        by_client = Counter(answer.client for answer in known if answer.is_bad)
        if len({answer.client for answer in known}) == 1:
            return by_client.total()
        return sum(min(count, self._needed / 2) for count in by_client.values())

    def _forget_old(self, route: _Route) -> None:
        since, recent = self._clock() - self.settings.window_s, route.recent
        while recent and (len(recent) > self.settings.answers or recent[0].at < since):
            recent.popleft()
        if route.heard and route.heard[0].at < since:
            route.heard = tuple(answer for answer in route.heard if answer.at >= since)

    def _go(self, route: _Route, turn: int, why: str) -> None:
        before = route.state
        route.turn = turn
        route.why = why
        route.version += 1
        route.canary_at = self._clock() + self.settings.probe_s
        report = self._report(route)
        route.recent.clear()
        route.heard = ()
        route.good_canaries = route.bad_canaries = route.heard_canaries = route.heard_bad_canaries = 0
        if route.state is not before:
            self._on_change(report, why)

    # -- between replicas ----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The time by the clock that answers are noted with."""
        return self._clock()

    def evidence(self) -> list[RouteEvidence]:
        """What other replicas need to know of the routes here."""
        for route in self._routes.values():
            self._forget_old(route)
        return [
            RouteEvidence(
                upstream=route.upstream,
                model=route.model,
                turn=route.turn,
                answers=tuple(route.recent),
                good_canaries=route.good_canaries,
                bad_canaries=route.bad_canaries,
                why=route.why,
                version=route.version,
            )
            for route in self._routes.values()
            if route.version
        ]

    def hear(self, told: Iterable[RouteEvidence]) -> None:
        """All that other replicas know at present; it takes the place of what they said before."""
        by_route: dict[tuple[str, str], list[RouteEvidence]] = {}
        for one in told:
            by_route.setdefault((one.upstream, one.model), []).append(one)
        for key, reports in by_route.items():
            newest = max(reports, key=lambda one: one.turn)
            route = self._routes.get(key)
            if route is None and newest.turn:
                route = self._route(*key)
            if route is not None:
                self._hear_of(route, newest, reports)
        for key, route in self._routes.items():
            if key not in by_route:
                route.heard, route.heard_canaries = (), 0

    def _hear_of(self, route: _Route, newest: RouteEvidence, reports: list[RouteEvidence]) -> None:
        if newest.turn > route.turn:
            self._go(route, newest.turn, f"another replica saw it: {newest.why}")
        same = [one for one in reports if one.turn == route.turn]
        route.heard = tuple(sorted((answer for one in same for answer in one.answers), key=lambda answer: answer.at))
        bad_canaries = sum(one.bad_canaries for one in same)
        if bad_canaries > route.heard_bad_canaries:
            route.good_canaries = 0  # a bad answer anywhere breaks the row
            route.version += 1
        route.heard_bad_canaries = bad_canaries
        route.heard_canaries = sum(one.good_canaries for one in same)
        self._decide(route, has_bad_news=any(answer.is_bad for answer in route.heard))

    def _route(self, upstream: str, model: str) -> _Route:
        key = (upstream, model)
        route = self._routes.pop(key, None)
        if route is None:
            if len(self._routes) >= _MOST_ROUTES:
                oldest = next(iter(self._routes))
                idle = next((name for name, one in self._routes.items() if one.state is RouteState.IN), oldest)
                del self._routes[idle]
            route = _Route(upstream, model, _Counts(self.settings.window_s))
        self._routes[key] = route
        return route

    def report(self) -> list[RouteReport]:
        """Every route that answered lately or is out, by name."""
        known = [self._report(route) for route in self._routes.values()]
        shown = [report for report in known if report.answers or report.state is RouteState.OUT]
        return sorted(shown, key=lambda report: (report.upstream, report.model))

    def _report(self, route: _Route) -> RouteReport:
        now = self._clock()
        self._forget_old(route)
        answers, found = route.counts.read(now)
        return RouteReport(
            upstream=route.upstream,
            model=route.model,
            state=route.state,
            answers=answers,
            found=found,
            judged=len(route.recent),
            bad=sum(answer.is_bad for answer in route.recent),
            good_canaries=route.good_canaries,
            first_byte_s=route.first_byte_s.get(True),
        )

    def keep(self, upstreams: Iterable[str]) -> None:
        """The configuration was loaded anew: forget upstreams that are not in it."""
        known = set(upstreams)
        for key in [key for key in self._routes if key[0] not in known]:
            del self._routes[key]


class RouteWatch(EndTap):
    """Tells what the answers of each request show. One for all requests."""

    def __init__(self, routes: RouteHealth) -> None:
        self._routes = routes

    def over(self, record: RequestRecord) -> None:
        for judged in record.details.judged:
            self._routes.note(judged, record.key)


class _Counts:
    """How many answers there were lately and what they showed, in slices of time."""

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _SLICES
        self._slices: deque[tuple[int, list[int], Counter[str]]] = deque()
        """Number, answers, classes; the oldest first."""

    def add(self, now: float, found: tuple[Found, ...]) -> None:
        number, slices = int(now / self._width), self._slices
        if not slices or slices[-1][0] != number:
            self._forget(now)
            slices.append((number, [0], Counter()))
        _, answers, classes = slices[-1]
        answers[0] += 1
        if found:
            classes.update(one.label for one in found)

    def read(self, now: float) -> tuple[int, dict[str, int]]:
        self._forget(now)
        total: Counter[str] = Counter()
        for _, _, classes in self._slices:
            total.update(classes)
        return sum(answers[0] for _, answers, _ in self._slices), dict(total.most_common())

    def _forget(self, now: float) -> None:
        oldest = int(now / self._width) - _SLICES
        while self._slices and self._slices[0][0] <= oldest:
            self._slices.popleft()


class _Route(msgspec.Struct):
    upstream: str
    model: str
    counts: _Counts
    turn: int = 0
    """How often the state changed."""
    why: str = ""
    version: int = 0
    recent: deque[RouteAnswer] = msgspec.field(default_factory=deque)
    """The last answers to requests with tools that were sent in this state."""
    heard: tuple[RouteAnswer, ...] = ()
    """Those that other replicas got in the same turn, the oldest first."""
    good_canaries: int = 0
    bad_canaries: int = 0
    heard_canaries: int = 0
    heard_bad_canaries: int = 0
    canary_at: float = 0.0
    """When the next canary may go there."""
    answered_at: float = 0.0
    first_byte_s: dict[bool, float] = msgspec.field(default_factory=dict)
    """Averages, of whole answers and of streams."""

    @property
    def state(self) -> RouteState:
        return RouteState.OUT if self.turn % 2 else RouteState.IN


def _numbers(recent: Iterable[RouteAnswer]) -> str:
    """`6 of the last 31 answers were bad (4 invalid_json, 2 cut)`."""
    answers = list(recent)
    classes = Counter(label for answer in answers for label in answer.bad)
    named = f" ({', '.join(f'{count} {label}' for label, count in classes.most_common())})" if classes else ""
    return f"{sum(answer.is_bad for answer in answers)} of the last {len(answers)} answers were bad{named}"

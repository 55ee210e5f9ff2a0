"""Which case is asked next, when enough is known, and what it will cost. Deterministic: the seed decides the order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

import msgspec

from athena.errors import InvalidRequest
from athena.verify.cases import AnswerMode, VerifyCase
from athena.verify.metrics import METRICS
from athena.verify.runs import VerifyTrial
from athena.verify.statistics import Bar, Decision
from athena.verify.verdicts import SideName, Tally

_CHARACTERS_PER_TOKEN = 4
_ANSWER_TOKENS = 120
_TRIES = 3
"""How often a question is asked whose answers say nothing about its metric, because something else is wrong with them."""
"""About what an answer to one of our own cases takes."""


class RunBudget(msgspec.Struct, frozen=True):
    """What a run may take at most; 0: that is no limit."""

    requests: int = 200
    tokens: int = 0
    money: float = 0.0


def read_budget(text: str) -> RunBudget:
    """`300`, `300 requests`, `200k tokens` or `2.50 usd`, or several of them with commas."""
    budget = RunBudget(0)
    for part in text.split(","):
        found = re.fullmatch(r"\s*\$?\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kKmM]?)\s*([a-zA-Z$]{0,10})\s*", part)
        if found is None:
            raise InvalidRequest(f"{part.strip()!r} is no budget: write 300, 200k tokens or 2.50 usd", path="budget")
        number = float(found[1]) * {"": 1, "k": 1000, "m": 1_000_000}[found[2].lower()]
        unit = "usd" if "$" in part else found[3].lower()
        if unit in ("", "request", "requests"):
            budget = msgspec.structs.replace(budget, requests=int(number))
        elif unit in ("t", "tok", "token", "tokens"):
            budget = msgspec.structs.replace(budget, tokens=int(number))
        elif unit in ("usd", "eur", "money"):
            budget = msgspec.structs.replace(budget, money=number)
        else:
            raise InvalidRequest(f"{part.strip()!r} is no budget: write 300, 200k tokens or 2.50 usd", path="budget")
    return budget


class Estimate(msgspec.Struct, frozen=True):
    """What a run takes at most, before it begins."""

    least: int
    """Requests that are made in any case: every case once in each mode."""
    requests: int
    input_tokens: int
    output_tokens: int
    money: float


class Planner:
    """Gives out cases until every metric is decided or the budget is spent."""

    def __init__(
        self,
        cases: Iterable[VerifyCase],
        *,
        seed: int = 0,
        bars: Mapping[str, Bar] | None = None,
        judged: SideName = "raw",
        budget: RunBudget = RunBudget(),  # noqa: B008  # a value that never changes
        price_in: float = 0.0,
        price_out: float = 0.0,
        modes: tuple[AnswerMode, ...] = ("whole", "stream"),
        only: tuple[str, ...] = (),
    ) -> None:
        """`only`: metrics to decide; left out, all of them."""
        self.tally = Tally(cases)
        self._bars = bars or {}
        self._judged = judged
        self._budget = budget
        self._prices = (price_in, price_out)
        self._only = only
        questions = [(case.id, mode) for case in self.tally.cases.values() for mode in case.modes if mode in modes]
        self._questions = sorted(questions, key=lambda question: _order(seed, question))
        self._asked: dict[tuple[str, AnswerMode], int] = dict.fromkeys(self._questions, 0)
        self._shows = {question: {self.tally.cases[question[0]].metric} & METRICS.keys() for question in self._questions}
        """Metrics that the answers to a question say something about: its own, and those that were seen."""
        self._tokens = 0
        self._money = 0.0
        self._out = 0
        """Questions that were given out and not answered yet."""

    @property
    def requests(self) -> int:
        """Requests that were made, those under way included."""
        return len(self.tally.trials) + self._out

    def estimate(self) -> Estimate:
        """What all of the budget takes."""
        least = len(self._questions)
        requests = max(least, self._budget.requests or least * 10)
        characters = sum(len(msgspec.json.encode(self.tally.cases[name].body)) for name, _ in self._questions)
        tokens_in = requests * characters // max(1, least) // _CHARACTERS_PER_TOKEN
        tokens_out = requests * _ANSWER_TOKENS
        money = (tokens_in * self._prices[0] + tokens_out * self._prices[1]) / 1e6
        return Estimate(least, requests, tokens_in, tokens_out, money)

    def next(self) -> tuple[VerifyCase, AnswerMode] | None:
        """The next question; None: enough is known, or nothing is left to spend."""
        if self._is_spent():
            return None
        question = self._fresh() or self._useful()
        if question is None:
            return None
        self._asked[question] += 1
        self._out += 1
        return self.tally.cases[question[0]], question[1]

    def done(self, trial: VerifyTrial) -> None:
        """An answer to a question that was given out."""
        self._out = max(0, self._out - 1)
        self._count(trial)

    def resume(self, trials: Iterable[VerifyTrial]) -> None:
        """Answers of an earlier run of the same plan."""
        for trial in trials:
            if (trial.case, trial.mode) in self._asked:
                self._asked[trial.case, trial.mode] += 1
                self._count(trial)

    def _count(self, trial: VerifyTrial) -> None:
        self.tally.add(trial)
        side = trial.raw if self._judged == "raw" else trial.through
        if (trial.case, trial.mode) in self._shows:
            shown = self._shows[trial.case, trial.mode]
            shown.update(side.marks)
            if trial.input_tokens:
                shown.add("token_drift")
            if self.tally.cases[trial.case].fixed:
                shown.add("streams_alike")
        self._tokens += trial.input_tokens + trial.output_tokens
        self._money += (trial.input_tokens * self._prices[0] + trial.output_tokens * self._prices[1]) / 1e6

    def _is_spent(self) -> bool:
        budget = self._budget
        return bool(
            (budget.requests and self.requests >= budget.requests)
            or (budget.tokens and self._tokens >= budget.tokens)
            or (budget.money and self._money >= budget.money)
        )

    def _fresh(self) -> tuple[str, AnswerMode] | None:
        """Every question once, first of all."""
        return next((question for question in self._questions if not self._asked[question]), None)

    def open_metrics(self) -> tuple[str, ...]:
        """Metrics that are not decided yet, those with the fewest answers first."""
        tally, side = self.tally, self._judged
        found = []
        for name, metric in METRICS.items():
            if self._only and name not in self._only:
                continue
            if not tally.count(side, name) and not self._may_show(name):
                continue
            if tally.decision(side, metric, self._bars.get(name, metric.bar)) is Decision.OPEN:
                found.append((tally.count(side, name), name))
        return tuple(name for _, name in sorted(found))

    def _may_show(self, metric: str) -> bool:
        """Might further answers say something about a metric that none has said anything about?"""
        return any(metric in shown and self._asked[question] < _TRIES for question, shown in self._shows.items())

    def _useful(self) -> tuple[str, AnswerMode] | None:
        """A question that says something about the metric that lacks answers most; of those, the one asked least."""
        for metric in self.open_metrics():
            able = [question for question in self._questions if metric in self._shows[question]]
            if able:
                return min(able, key=lambda question: self._asked[question])
        return None


def _order(seed: int, question: tuple[str, AnswerMode]) -> bytes:
    return hashlib.sha256(f"{seed}:{question[0]}:{question[1]}".encode()).digest()

"""Both edges of the gateway against mutants: requests that are wrong in small ways, and answers that are.

The gate runs a fixed number with a fixed seed, so that it finds the same every time. `./dev fuzz` runs 100,000 of each kind, or
as many as `ATHENA_MUTANTS` says, with a new seed each time or that of `ATHENA_SEED`, and makes some of its mutants of earlier
finds. Every message that broke a rule is written into `tests/cases/edges`, from where the gate runs it for ever after.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from athena.dialects import dialect_names
from edges.mutations import mutated_bytes, mutated_value
from edges.world import UPSTREAM_OF, WrittenUpstream, exchange_all, in_batches, strict_answers, world
from support.cases import CASES, answer_modes, case_bytes, dialect_cases
from support.examples import IS_DEEP, SEED
from support.fault_judge import judge, request_body, request_bytes
from support.gateway_process import GatewayProcess
from support.upstream_speech import CONTROL

MUTANTS = int(os.environ.get("ATHENA_MUTANTS") or (100_000 if IS_DEEP else 1500))
"""How many requests, and as many answers."""
FOUND = CASES / "edges"
World = tuple[WrittenUpstream, GatewayProcess]
pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("edges")) as both:
        upstream, _ = both
        for dialect, speech in CONTROL.items():
            upstream.answers[f"control-{dialect}"] = _response(speech.whole, "application/json")
            upstream.answers[f"control-{dialect}-streamed"] = _response(b"".join(speech.frames), "text/event-stream")
        yield both


def _response(body: bytes, kind: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


# -- requests --------------------------------------------------------------------------------------------------------------


@cache
def _valid_requests(dialect: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Path and body of requests that the dialect allows, all for the control answer of the Chat upstream."""
    found = []
    for case in dialect_cases(dialect).request:
        body = json.loads(case.body)
        stream = bool(case.stream if case.stream is not None else body.get("stream"))
        model = f"chat/control-openai_chat{'-streamed' if stream else ''}"
        path, _ = request_body(dialect, model, stream=stream)
        if dialect != "gemini":
            body["model"] = model
        found.append((path, body))
    return tuple(found) or tuple(request_body(dialect, "chat/control-openai_chat", stream=False) for _ in range(1))


def _mutated_body(number: int) -> bytes:
    """A request whose framing is right and whose body is not."""
    dice = random.Random(f"request {SEED} {number}")
    if (found := _near_a_find("body", dice)) is not None:
        return found[1]
    path, body = dice.choice(_valid_requests(dialect_names()[number % len(dialect_names())]))
    if dice.random() < 0.8:
        data = json.dumps(mutated_value(body, dice)).encode()
    else:
        data = mutated_bytes(json.dumps(body).encode(), dice)
    return request_bytes(path, data, "connection: close")


def _mutated_head(number: int) -> bytes:
    """A request whose body is right and whose head is not."""
    dice = random.Random(f"head {SEED} {number}")
    if (found := _near_a_find("head", dice)) is not None:
        return found[1]
    path, body = dice.choice(_valid_requests(dialect_names()[number % len(dialect_names())]))
    head, mark, data = request_bytes(path, body, "connection: close").partition(b"\r\n\r\n")
    return mutated_bytes(head + mark, dice) + data


def _request_problem(raw: bytes) -> str:
    """What no client must ever see; "" where all is well."""
    try:
        answers = strict_answers(raw)
    except ValueError as error:
        return str(error)
    for answer in answers:
        if answer.status == 500:
            return f"the gateway failed: {answer.body[:300]!r}"
    return ""


def test_mutated_bodies(running: World) -> None:
    _, gateway = running
    findings = Findings()
    for numbers in in_batches(MUTANTS):
        requests = [_mutated_body(number) for number in numbers]
        for request, raw in zip(requests, exchange_all(gateway.port, requests), strict=True):
            problem = _request_problem(raw) or ("" if raw else "no answer at all")
            if problem:
                findings.add("body", request, raw, problem)
    findings.check()


def test_mutated_heads(running: World) -> None:
    _, gateway = running
    findings = Findings()
    for numbers in in_batches(MUTANTS // 5):
        requests = [_mutated_head(number) for number in numbers]
        for request, raw in zip(requests, exchange_all(gateway.port, requests, then_end=True), strict=True):
            problem = _request_problem(raw)
            if problem:
                findings.add("head", request, raw, problem)
    findings.check()


class Findings:
    """Messages that broke a rule. Each is written down where the gate will find it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, kind: str, message: bytes, raw: bytes, problem: str) -> None:
        path = FOUND / f"{kind}-{hashlib.sha256(message).hexdigest()[:12]}.bin"
        FOUND.mkdir(exist_ok=True)
        path.write_bytes(message)
        self._lines.append(f"{path.name}: {problem[:300]}\n  received: {raw[-300:]!r}")

    def check(self) -> None:
        assert not self._lines, f"ATHENA_SEED={SEED}\n" + "\n".join(self._lines[:20])


@cache
def _finds(kind: str) -> tuple[tuple[str, bytes], ...]:
    """Name and bytes of all messages of one kind that broke a rule once."""
    return tuple((path.stem, path.read_bytes()) for path in sorted(FOUND.glob(f"{kind}-*.bin")))


def _near_a_find(kind: str, dice: random.Random) -> tuple[str, bytes] | None:
    """Now and then a mutant of an earlier find, with its name: where one fault was there may be others."""
    if not IS_DEEP or not _finds(kind) or dice.random() >= 0.1:
        return None
    name, message = dice.choice(_finds(kind))
    return name, mutated_bytes(message, dice)


# -- answers ---------------------------------------------------------------------------------------------------------------


@cache
def _valid_answers() -> tuple[tuple[str, str, bytes], ...]:
    """Dialect, mode and bytes of every answer in the case files, and the control answers."""
    found = [(name, mode, case_bytes(case, mode)) for name in dialect_names() for case, mode in answer_modes(name)]
    for name, speech in CONTROL.items():
        found += [(name, "stream", b"".join(speech.frames)), (name, "whole", speech.whole)]
    return tuple(found)


def _mutated_answer(number: int) -> tuple[str, str, str, bytes]:
    """Upstream dialect, mode, client dialect and the upstream's whole HTTP response."""
    dice = random.Random(f"answer {SEED} {number}")
    if (found := _near_a_find("answer", dice)) is not None:
        _, dialect, mode, client, _ = found[0].split("-")
        return dialect, mode, client, found[1]
    dialect, mode, body = dice.choice(_valid_answers())
    client = dialect_names()[number % len(dialect_names())]
    kind = "text/event-stream" if mode == "stream" else "application/json"
    if mode == "whole" and dice.random() < 0.6:
        try:
            body = json.dumps(mutated_value(json.loads(body), dice)).encode("utf-8", "surrogatepass")
        except ValueError:
            body = mutated_bytes(body, dice)
        return dialect, mode, client, _response(body, kind)
    if mode == "stream" and dice.random() < 0.6:
        return dialect, mode, client, _response(_with_mutated_record(body, dice), kind)
    if dice.random() < 0.8:
        return dialect, mode, client, _response(mutated_bytes(body, dice), kind)
    return dialect, mode, client, mutated_bytes(_response(body, kind), dice)


def _with_mutated_record(body: bytes, dice: random.Random) -> bytes:
    """The stream with the JSON of one record changed."""
    lines = body.split(b"\n")
    places = [index for index, line in enumerate(lines) if line.startswith(b"data: {")]
    if not places:
        return mutated_bytes(body, dice)
    place = dice.choice(places)
    try:
        value = mutated_value(json.loads(lines[place][6:]), dice)
    except ValueError:
        return mutated_bytes(body, dice)
    lines[place] = b"data: " + json.dumps(value).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _answer_problem(dialect: str, mode: str, client: str, raw: bytes) -> str:
    try:
        answers = strict_answers(raw)
    except ValueError as error:
        return str(error)
    if len(answers) != 1:
        return f"{len(answers)} answers to one request"
    answer = answers[0]
    if answer.status >= 500 and b"internal_error" in answer.body:
        return f"the gateway failed: {answer.body[:300]!r}"
    try:
        lies = judge(client, answer, stream=mode == "stream").lies
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        lies = [f"a strict client cannot read it: {error!r}"]
    if client == dialect:
        # Between equals records pass as they are: their numbering and the order of their blocks are the upstream's.
        lies = [lie for lie in lies if lie.startswith(_NEVER)]
    return "; ".join(lie for lie in lies if lie != "two blocks are open" or b"max_tokens" not in answer.body)


_NEVER = ("the HTTP framing", "not UTF-8", "an odd line", "not JSON", "ended without an end", "something after the end")
"""What no client may see, whoever wrote it."""


def _ask(upstream_dialect: str, mode: str, client: str, model: str) -> bytes:
    path, body = request_body(client, f"{UPSTREAM_OF[upstream_dialect]}/{model}", stream=mode == "stream")
    return request_bytes(path, body, "connection: close")


def test_mutated_answers(running: World) -> None:
    upstream, gateway = running
    findings = Findings()
    for numbers in in_batches(MUTANTS):
        mutants = [_mutated_answer(number) for number in numbers]
        upstream.answers.update({f"mutant-{number}": one[3] for number, one in zip(numbers, mutants, strict=True)})
        requests = [_ask(*one[:3], f"mutant-{number}") for number, one in zip(numbers, mutants, strict=True)]
        for one, raw in zip(mutants, exchange_all(gateway.port, requests), strict=True):
            dialect, mode, client, response = one
            problem = _answer_problem(dialect, mode, client, raw)
            if problem:
                findings.add(f"answer-{dialect}-{mode}-{client}", response, raw, problem)
        for number in numbers:
            del upstream.answers[f"mutant-{number}"]
    findings.check()


# -- what was found once ---------------------------------------------------------------------------------------------------


def test_requests_found_earlier(running: World) -> None:
    _, gateway = running
    for kind in ("body", "head"):
        for name, message in _finds(kind):
            (raw,) = exchange_all(gateway.port, [message], then_end=kind == "head")
            assert _request_problem(raw) == "", name


def test_answers_found_earlier(running: World) -> None:
    upstream, gateway = running
    for name, message in _finds("answer"):
        _, dialect, mode, client, model = name.split("-")
        upstream.answers[model] = message
        (raw,) = exchange_all(gateway.port, [_ask(dialect, mode, client, model)])
        assert _answer_problem(dialect, mode, client, raw) == "", name

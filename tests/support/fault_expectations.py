"""The fault catalogue's expectations: which fault a client meets where, and what it must see (tests/cases/faults.toml)."""

from __future__ import annotations

import tomllib
from typing import Any
from zlib import crc32

import msgspec

from support.canonical import FINISH_WORDS, Piece, Seen, merge
from support.cases import CASES
from support.fault_config import DIALECTS
from support.fault_judge import Verdict
from support.fault_scripts.call_forms import EVIL, HUGE, MANY
from support.fault_scripts.call_texts import MARKUP, QUOTED, REDOS


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """Faults of one row that all end the same way."""

    row: int
    expect: str
    names: tuple[str, ...]
    whole: str = ""
    answer: str = "control"
    whole_answer: str = ""
    everywhere: bool = False
    not_in: tuple[str, ...] = ()
    short: str = ""
    note: str = ""


class Refused(msgspec.Struct):
    """The client's SDK raised an error of its own over the answer."""

    error: Exception


class Expected(msgspec.Struct):
    """An answer in the vocabulary of the case files."""

    finish: str
    parts: list[dict[str, Any]]

    def pieces(self) -> list[Piece]:
        found: list[Piece] = []
        for part in self.parts:
            if "call" in part:
                found.append(Piece("call", part["call"], part["input"]))
            else:
                kind = "thinking" if "thinking" in part else "text"
                found.append(Piece(kind, part[kind]))
        return merge(found)


Result = Verdict | Seen | Refused | Exception
"""What came of a question, as the raw bytes or an SDK show it; an exception is one that no client should meet."""

_FILE = tomllib.loads((CASES / "faults.toml").read_text(encoding="utf-8"))
CATALOGUE = [msgspec.convert(entry, Fault) for entry in _FILE["fault"]]
_DEEP: Any = []
for _ in range(99):
    _DEEP = [_DEEP]
ANSWERS: dict[str, Expected] = {name: msgspec.convert(value, Expected) for name, value in _FILE["answers"].items()} | {
    "giant": Expected("stop", [{"text": "x" * 1024 * 1024}]),
    "many": Expected("tool", [{"call": "a", "input": {"p": number}} for number in range(MANY)]),
    "huge": Expected("tool", [{"call": "a", "input": {"city": HUGE}}]),
    "deep": Expected("tool", [{"call": "a", "input": {"p": _DEEP}}]),
    "evil": Expected("tool", [{"call": EVIL, "input": {"p": 1}}]),
    "quoted": Expected("stop", [{"text": QUOTED}]),
    "in_thinking": Expected("stop", [{"thinking": MARKUP}, {"text": "so"}]),
    "redos": Expected("stop", [{"text": REDOS}]),
}


def upstreams_of(fault: Fault) -> list[str]:
    """The upstreams that have this fault, by the names of `fault_config`."""
    if not fault.everywhere:
        return ["chat"]
    names = [name for name in DIALECTS if name not in fault.not_in]
    return [*names, *(f"{name}-clean" for name in names)]


def clients_of(upstream_name: str, fault: str) -> list[str]:
    """All four for Chat. Others: their own, whose records may pass untouched, and one that takes turns with the fault."""
    own = DIALECTS[upstream_name.removesuffix("-clean")]
    if upstream_name == "chat":
        return list(DIALECTS.values())
    if upstream_name.endswith("-clean"):
        return [own]
    others = [dialect for dialect in DIALECTS.values() if dialect != own]
    return [own, others[crc32(fault.encode()) % len(others)]]


def what_is_wrong(fault: Fault, client: str, stream: bool, result: Result) -> str:
    """Why the result is none of the expected ones; empty when it is."""
    wanted = fault.expect if stream else fault.whole or fault.expect
    answers = fault.answer if stream else fault.whole_answer or fault.answer
    reasons = []
    for one in wanted.split("|"):
        code, _, status = one.strip().partition(" ")
        reason = _mismatch(code, status, answers, client, stream, result)
        if not reason:
            return ""
        reasons.append(reason)
    return f"wanted {wanted}: " + "; ".join(reasons)


def _mismatch(code: str, status: str, answers: str, client: str, stream: bool, result: Result) -> str:
    if isinstance(result, Verdict) and result.lies:
        return f"lies: {result.lies[:3]}"
    failed = isinstance(result, Refused) or (isinstance(result, Verdict) and result.outcome != "OK")
    if isinstance(result, Exception):
        return f"raised {result!r}"
    seen = result.seen if isinstance(result, Verdict) else result if isinstance(result, Seen) else None
    if code == "NOCALL":
        return f"a call: {seen!r}"[:300] if seen is not None and seen.calls() else ""
    if code in ("SAME", "LEN"):
        if code == "LEN" and client == "openai_responses" and stream and isinstance(result, Refused):
            # The SDK's helper raises on every stream that ends as incomplete.
            return ""
        if failed:
            return f"failed: {result!r}"[:500]
        return _difference(code, answers, client, seen) if seen is not None else "nothing to read"
    if not failed:
        return f"an answer: {result!r}"[:500]
    if isinstance(result, Verdict):
        outcomes = {"PRE": ("PRE",), "MID": ("MID",) if stream else ("PRE",), "FAIL": ("PRE", "MID")}[code]
        if result.outcome not in outcomes:
            return f"{result.outcome} {result.status}"
        if result.status and not _fits(result.status, status):
            return f"status {result.status}"
    return ""


def _fits(status: int, wanted: str) -> bool:
    return str(status) == wanted or (wanted.endswith("xx") and str(status)[0] == wanted[0])


def _difference(code: str, answers: str, client: str, seen: Seen) -> str:
    if code == "LEN":
        return "" if seen.finish in FINISH_WORDS[client]["length"] else f"finish {seen.finish}"
    candidates = [ANSWERS[name.strip()] for name in answers.split("|")]
    for expected in candidates:
        if seen.pieces == expected.pieces() and seen.finish in FINISH_WORDS[client][expected.finish]:
            if len(set(seen.ids)) != len(seen.ids):
                return f"ids repeat: {seen.ids}"
            return ""
    return f"another answer: {str(seen.pieces)[:400]} {seen.finish}"

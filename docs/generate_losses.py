"""Writes docs/losses.md: what of the official SDKs' request and answer types is left out on the way to another dialect.

Run `python docs/generate_losses.py` after a change and after a new release of an SDK; `--check` only says whether the page is
current. Every field, value and type was tried by the sweep of `tests/support`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from athena.dialects import dialect_names  # noqa: E402
from support import sweep_answers, sweep_requests  # noqa: E402
from support.sdk_sweep import Variant  # noqa: E402
from support.sweep_requests import Outcome  # noqa: E402

PAGE = HERE / "losses.md"
TITLES = {
    "anthropic_messages": "Anthropic Messages",
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    "gemini": "Gemini",
}
SDKS = ("anthropic", "openai", "google-genai")
Sweep = Callable[[str, str], Iterator[tuple[Variant, Outcome]]]


def page() -> str:
    """The whole page."""
    lines = [
        "# What is left out, and how you are told",
        "",
        "<!-- Written by docs/generate_losses.py from the SDKs' types and the code itself. Do not edit. -->",
        "",
        "Every field, value and type of the official SDKs "
        f"({', '.join(f'`{name}` {version(name)}' for name in SDKS)}) was tried on every way. This page lists what does not "
        "reach an upstream or a client of another dialect as it was, and the words of the warning. What is not listed is said "
        "in the other dialect's own words, goes along as it is, or says nothing to anybody but its own provider (the last "
        "section). Between a client and an upstream of the same dialect nothing is left out.",
        "",
        "A request's warnings are in the header `x-athena-warnings`, in `.warnings` of `translate_request` and in the log. "
        "Those of an answer are in the same header where the answer comes whole, in `.warnings` of `translate_response` and "
        "of `StreamTranslator`, in the log field `answer_warnings` and in the metric `athena_answer_losses_total`. What an API "
        "has that no SDK knows yet is left out as *unknown to this upstream*; it never is an error.",
        "",
        "A path in the first column names a field as the API writes it; `[]` is an entry of an array, `<name>` the type of an "
        "object, `=word` one value of several.",
        "",
    ]
    for title, sweep, direction in (
        ("Requests", sweep_requests.outcomes, "to"),
        ("Answers", sweep_answers.whole_outcomes, "to a client of"),
        ("Streams", _only_in_streams, "to a client of"),
    ):
        lines += [f"## {title}", ""]
        for source in dialect_names():
            lines += [f"### {title} of {TITLES[source]}", ""]
            lines += _table(source, sweep, direction)
    lines += ["## Left out silently", "", "Nothing of this changes what a model reads or a client gets.", ""]
    reasons: dict[str, None] = {}
    for _, reason in (*sweep_requests.FREE, *sweep_answers.FREE):
        reasons[reason] = None
    lines += [f"- {reason}" for reason in reasons]
    return "\n".join(lines).rstrip() + "\n"


def _table(source: str, sweep: Sweep, direction: str) -> list[str]:
    """One row for all that is left out with the same words on the same ways."""
    others = [name for name in dialect_names() if name != source]
    fates: dict[str, dict[str, str]] = {}
    for target in others:
        for variant, outcome in sweep(source, target):
            if outcome.fate in ("told", "refused"):
                fates.setdefault(variant.path, {})[target] = _words(variant, outcome)
    rows: dict[tuple[str, ...], list[str]] = {}
    for path, words in fates.items():
        if not _is_told_above(path, words, fates):
            rows.setdefault(tuple(words.get(target, "") for target in others), []).append(path)
    if not rows:
        return ["The same as of whole answers." if sweep is _only_in_streams else "Nothing.", ""]
    head = ["what", *(f"{direction} {TITLES[target]}" for target in others)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for cells, paths in rows.items():
        lines.append(f"| {', '.join(f'`{path}`' for path in paths)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _only_in_streams(source: str, target: str) -> Iterator[tuple[Variant, Outcome]]:
    """What is told of events and not of whole answers."""
    whole = {loss.path for _, outcome in sweep_answers.whole_outcomes(source, target) for loss in outcome.losses}
    for variant, outcome in sweep_answers.stream_outcomes(source, target):
        if any(loss.path not in whole for loss in outcome.losses):
            yield variant, outcome


def _words(variant: Variant, outcome: Outcome) -> str:
    if outcome.fate == "refused":
        return f"**refused**: {_plain(_general(outcome.message.partition(': ')[2] or outcome.message, variant.path))}"
    told: dict[str, str] = {}
    for loss in outcome.losses:
        told.setdefault(loss.action, _plain(_general(loss.reason, variant.path)))
    return "; ".join(f"*{action}*: {reason}" for action, reason in told.items())


def _is_told_above(path: str, words: dict[str, str], fates: dict[str, dict[str, str]]) -> bool:
    """Is the same said of the object that this stands in?"""
    return any(fates.get(path[: match.end()]) == words for match in re.finditer(r">(?=[.\[<])", path))


def _general(reason: str, path: str) -> str:
    """The reason without the one name that the row's paths differ in."""
    for name in sorted(re.findall(r"[\w.-]+", path), key=len, reverse=True):
        if len(name) > 3 and re.match(rf"{re.escape(name)}\b", reason):
            return f"it{reason[len(name) :]}"
    return reason


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

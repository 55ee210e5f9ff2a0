"""Writes docs/dialects.md: what becomes of every feature between the dialects, found out by trying.

Run `python docs/generate.py` after a change; `--check` only says whether the page is current. The features are real request
bodies in `features.toml`; finish words, usage fields and errors are what the encoders write.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeContext, ModelEntry
from athena.errors import AthenaError, ErrorKind, UnsupportedFeature
from athena.model.events import Done, Error, Event, Finish, FinishKind, Usage
from athena.model.request import Request
from athena.translate import translate_request

HERE = Path(__file__).parent
PAGE = HERE / "dialects.md"
TITLES = {
    "anthropic_messages": "Anthropic Messages",
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    "gemini": "Gemini",
}
MODELS = {
    "anthropic_messages": "claude-sonnet-4-5",
    "openai_chat": "m",
    "openai_responses": "gpt-5.1",
    "gemini": "gemini-3-pro",
}
SILENT = "LOST WITHOUT A WORD"
"""What must stand in no row."""
SECTIONS = {
    "roles": "Roles and instructions",
    "content": "Content",
    "tools": "Tool definitions",
    "names": "Tool names",
    "ids": "Call ids",
    "pairs": "Pairs and order",
    "choice": "Tool choice",
    "reasoning": "Reasoning controls",
    "history": "Reasoning in the history",
    "settings": "Length, sampling and settings",
    "provider": "Bound to one provider",
}


class Feature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing a request can ask for."""

    section: str
    name: str
    dialect: str
    body: str
    without: str = ""
    """The same without the feature, where the base body does not say it."""
    free: bool = False
    """It means nothing to the answer: a target that has no such thing may leave it out silently."""
    note: str = ""


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    section: str
    text: str


class Features(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base: dict[str, str]
    feature: tuple[Feature, ...]
    note: tuple[Note, ...]


def load() -> Features:
    """The features file, checked."""
    return msgspec.convert(tomllib.loads((HERE / "features.toml").read_text(encoding="utf-8")), Features)


def fate(feature: Feature, base: str, target: str) -> str:
    """What becomes of a feature on its way to a dialect."""
    if feature.dialect == target:
        return "native"
    body: dict[str, Any] = {**json.loads(base), **json.loads(feature.body)}
    where: dict[str, Any] = {"source": feature.dialect, "target": target, "model": MODELS[target]}
    try:
        translated = translate_request(body, **where)
    except UnsupportedFeature as error:
        return f"**refused**: {_plain(error.message)}"
    plain = translate_request({**json.loads(base), **json.loads(feature.without or "{}")}, **where)
    told = [loss for loss in translated.warnings if loss not in plain.warnings]
    if not told and translated.body == plain.body:
        return "left out, no meaning lost" if feature.free else SILENT
    if not told:
        return "mapped"
    try:
        translate_request(body, **where, strict=True)
        strict = ""
    except AthenaError:
        strict = " (refused when strict)"
    actions: dict[str, str] = {}
    for loss in told:
        actions.setdefault(loss.action, _plain(loss.reason))
    return "; ".join(f"*{action}*: {reason}" for action, reason in actions.items()) + strict


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def encoded(dialect: str, events: list[Event]) -> dict[str, Any]:
    """A whole answer of those events."""
    request = Request(dialect=dialect, model="m")
    output = get_dialect(dialect).encoder(EncodeContext(request=request, seed="docs"), stream=False).feed(events)
    answer: dict[str, Any] = json.loads(output)
    return answer


def finish_word(dialect: str, kind: FinishKind) -> str:
    """The dialect's own word for an ending."""
    answer = encoded(dialect, [Done(Finish(kind))])
    if dialect == "anthropic_messages":
        return str(answer["stop_reason"])
    if dialect == "openai_chat":
        return str(answer["choices"][0]["finish_reason"])
    if dialect == "gemini":
        return str(answer["candidates"][0]["finishReason"])
    details = answer.get("incomplete_details")
    return str(answer["status"]) + (f" / {details['reason']}" if details else "")


def usage_fields(dialect: str, counted: Usage) -> str:
    """The usage object for one count."""
    answer = encoded(dialect, [Done(Finish(), usage=counted)])
    usage = answer.get("usage", answer.get("usageMetadata"))
    found = dict(_leaves(usage, ""))
    plain = dict(_leaves(_usage_of(dialect, Usage()), ""))
    shown = [f"{key} = {value}" for key, value in found.items() if plain.get(key) != value and isinstance(value, int)]
    return ", ".join(f"`{item}`" for item in shown) or "none"


def _usage_of(dialect: str, counted: Usage) -> Any:
    answer = encoded(dialect, [Done(Finish(), usage=counted)])
    return answer.get("usage", answer.get("usageMetadata"))


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}.{key}" if path else key)]
    return [(path, value)]


def error_words(dialect: str, kind: ErrorKind) -> str:
    """Status and words of an error."""
    answer = get_dialect(dialect).encode_error(Error("x", kind=kind, code="upstream_error"))
    body = json.loads(answer.body)["error"]
    words = [str(body[key]) for key in ("type", "status", "code") if isinstance(body.get(key), str)]
    return f"{answer.status} {' / '.join(words)}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows), ""]


def page() -> str:
    """The whole page."""
    features = load()
    names = list(dialect_names())
    lines = [
        "# Dialects: what is supported, emulated, dropped and refused",
        "",
        "<!-- Written by docs/generate.py from docs/features.toml and the code itself. Do not edit. -->",
        "",
        "Every row was tried: a request of the client's dialect with that feature, written for an upstream of each dialect "
        f"(models: {', '.join(f'{TITLES[name]} `{MODELS[name]}`' for name in names)}; other models and servers differ by their "
        "profile). *native*: the client's own JSON, untouched. *mapped*: said in the target's words, nothing lost. *emulated*, "
        "*repaired*, *dropped*: reported in `x-athena-warnings`, with the reason given here. **refused**: HTTP 400 that names "
        "the field. `strict: true` turns every drop that changes the meaning into a refusal.",
        "",
        "## Requests",
        "",
    ]
    for section, title in SECTIONS.items():
        lines += [f"### {title}", ""]
        rows = []
        for feature in features.feature:
            if feature.section == section:
                name = f"{feature.name} ({TITLES[feature.dialect]})" + (f": {feature.note}" if feature.note else "")
                rows.append([name, *(fate(feature, features.base[feature.dialect], target) for target in names)])
        lines += table(["feature (of a client of)", *(f"to {TITLES[name]}" for name in names)], rows)
        lines += [f"{note.text}\n" for note in features.note if note.section == section]
    lines += ["## Answers", "", "### Endings", ""]
    kinds: tuple[FinishKind, ...] = get_args(FinishKind)
    lines += table(
        ["ending", *(TITLES[name] for name in names)],
        [[kind, *(f"`{finish_word(name, kind)}`" for name in names)] for kind in kinds],
    )
    lines += [f"{note.text}\n" for note in features.note if note.section == "endings"]
    lines += ["### Usage", "", "The fields that a count of 7 changes in an answer to a client of each dialect.", ""]
    counts = ("input_total", "output_total", "cache_read", "cache_write", "reasoning")
    rows = [[count, *(usage_fields(name, _counted(count)) for name in names)] for count in counts]
    lines += table(["count", *(TITLES[name] for name in names)], rows)
    lines += [f"{note.text}\n" for note in features.note if note.section == "usage"]
    lines += ["### Errors", ""]
    errors: tuple[ErrorKind, ...] = get_args(ErrorKind)
    lines += table(
        ["error", *(TITLES[name] for name in names)],
        [[kind, *(error_words(name, kind) for name in names)] for kind in errors],
    )
    lines += [f"{note.text}\n" for note in features.note if note.section == "errors"]
    lines += ["### Token counts and model lists", ""]
    rows = []
    for name in names:
        models = json.dumps(get_dialect(name).encode_models([ModelEntry("m", display_name="M")]))
        rows.append([TITLES[name], f"`{json.dumps(get_dialect(name).encode_count(7))}`", f"`{models}`"])
    lines += table(["dialect", "count of 7 tokens", "list of one model"], rows)
    return "\n".join(lines).rstrip() + "\n"


def _counted(field: str) -> Usage:
    total = "output_total" if field == "reasoning" else "input_total"
    return msgspec.structs.replace(Usage(), **{total: 7, field: 7})


def main() -> int:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Removal of fields an upstream refuses, wherever a client put them (`Profile.drop_fields`). Never changes its input."""

from __future__ import annotations

from typing import Any

from athena.dialects.losses import Losses

_DATA = frozenset({"input", "input_schema", "schema"})
"""Keys whose values are the client's own data: what looks like a field in there is none."""


def without_fields(body: dict[str, Any], names: tuple[str, ...], report: Losses) -> dict[str, Any]:
    """The body without them: a plain name at top level, in messages, blocks and tools; `a.b` in every object a."""
    if not names:
        return body
    plain = frozenset(name for name in names if "." not in name)
    nested: dict[str, set[str]] = {}
    for name in names:
        if "." in name:
            outer, inner = name.split(".", 1)
            nested.setdefault(outer, set()).add(inner)
    found: dict[str, None] = {}
    filtered = _filter(body, plain, nested, found)
    for name in found:
        report.hint(name, "not taken by this upstream")
    assert isinstance(filtered, dict)
    return filtered


def _filter(value: Any, plain: frozenset[str], nested: dict[str, set[str]], found: dict[str, None]) -> Any:
    if isinstance(value, list):
        return [_filter(item, plain, nested, found) for item in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, inner in value.items():
        if key in plain:
            found[key] = None
        elif key in _DATA:
            kept[key] = inner
        elif key in nested and isinstance(inner, dict):
            found.update(dict.fromkeys(f"{key}.{name}" for name in nested[key] if name in inner))
            kept[key] = {name: _filter(part, plain, nested, found) for name, part in inner.items() if name not in nested[key]}
        else:
            # Lists lead to messages, blocks and tools; a plain name inside any other object is that object's own.
            kept[key] = _filter(inner, plain if isinstance(inner, list) else frozenset(), nested, found)
    return kept

"""The effective configuration as text: every value, where it came from, and no secret."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from athena.shells.config.load import Loaded
from athena.shells.config.places import DEFAULT_ORIGIN, KeyPath, Layout
from athena.shells.config.secret import MASK, Secret

_DEFAULT = "default"
_DERIVED = ("api_key", "dialect", "profile")
_ONLY_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}\Z")


class ShownValue(msgspec.Struct, frozen=True):
    """One value of the effective configuration."""

    path: KeyPath
    text: str
    """The value as YAML, on one line; secrets masked, `${NAME}` as it was written."""
    source: str


def effective_values(loaded: Loaded, *, defaults: bool = True) -> list[ShownValue]:
    """Every value, in the order of the reference; without `defaults` only what is set, or follows from what is set."""
    found: list[ShownValue] = []
    _collect(loaded.config, (), loaded.layout, found)
    return found if defaults else [value for value in found if value.source != _DEFAULT]


def show(loaded: Loaded, *, defaults: bool = True) -> str:
    """The effective configuration as YAML, each line with its source. For eyes: keys are masked, hashes cut."""
    lines: list[tuple[str, str]] = []
    open_path: KeyPath = ()
    for value in effective_values(loaded, defaults=defaults):
        common = 0
        parents = value.path[:-1]
        while common < min(len(parents), len(open_path)) and parents[common] == open_path[common]:
            common += 1
        for depth in range(common, len(parents)):
            lines.append((_head(value.path, depth), ""))
        lines.append((f"{_head(value.path, len(parents))} {value.text}", value.source))
        open_path = parents
    width = min(max((len(text) for text, source in lines if source), default=0), 72)
    shown = [f"{text:<{width}}  # {source}" if source else text for text, source in lines]
    return "\n".join(_join_items(shown)) + "\n"


def _head(path: KeyPath, depth: int) -> str:
    step = path[depth]
    indent = "  " * depth
    return f"{indent}-" if isinstance(step, int) else f"{indent}{_plain(step)}:"


def _join_items(lines: list[str]) -> list[str]:
    """`-` and the first key of its item on one line."""
    joined: list[str] = []
    for line in lines:
        if joined and joined[-1].strip() == "-":
            joined[-1] += line[len(joined[-1]) :]
        else:
            joined.append(line)
    return joined


def _collect(value: Any, path: KeyPath, layout: Layout, found: list[ShownValue]) -> None:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _collect(getattr(value, name), (*path, name), layout, found)
        return
    if isinstance(value, dict) and value and not _is_plain(value):
        for key, item in value.items():
            _collect(item, (*path, key), layout, found)
        return
    if isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        for index, item in enumerate(value):
            _collect(item, (*path, index), layout, found)
        return
    origin = layout.origin(path)
    written = _was_written(layout, path)
    derived = len(path) > 1 and not written and value is not None
    source = str(origin) if written else "derived" if derived and path[-1] in _DERIVED else _DEFAULT
    found.append(ShownValue(path, msgspec.json.encode(_visible(value, path, layout)).decode(), source))


def _was_written(layout: Layout, path: KeyPath) -> bool:
    return path in layout.origins and layout.origins[path] is not DEFAULT_ORIGIN


def _is_plain(value: Any) -> bool:
    """Free-form data, shown on one line."""
    if isinstance(value, dict):
        return all(_is_plain(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return not isinstance(value, Secret | msgspec.Struct)


def _visible(value: Any, path: KeyPath, layout: Layout) -> Any:
    """The value without its secrets: what came out of a variable is shown as the variable's name."""
    text = layout.unexpanded.get(path)
    if isinstance(value, Secret):
        return text if text is not None and _ONLY_VARIABLE.match(text) else MASK
    if text is not None:
        return text
    if isinstance(value, dict):
        return {key: _visible(item, (*path, key), layout) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item, (*path, index), layout) for index, item in enumerate(value)]
    if isinstance(value, str) and path[0] == "keys" and path[-1] == "hash":
        return value[:15] + "..."
    return value


def _plain(key: str) -> str:
    return key if key.replace("_", "a").replace("-", "a").replace(".", "a").isalnum() else msgspec.json.encode(key).decode()

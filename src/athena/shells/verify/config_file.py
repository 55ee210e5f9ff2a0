"""Settings of one model's rule, written into a person's athena.yml: only those lines change, comments and order stay.

The file is never written anew from its values. The lines of the rule are found by the marks of the YAML parser, changed as
text, and the result is read again: it must say what was meant, and everything else must say what it said before.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from athena.errors import AthenaError
from athena.shells.config.bad_file import BadYaml
from athena.shells.config.yaml_lines import read_yaml

RuleChanges = Mapping[tuple[str, ...], Any]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,200}")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
"""Words that YAML reads as something else."""


class CannotWrite(AthenaError):
    """The settings cannot be put into the file."""

    code = "can_not_write_config"


def with_rule(text: str, use: str, changes: RuleChanges) -> str:
    """The text of a configuration with these settings in the rule whose target is `use`; a rule is added where there is none.

    Raises CannotWrite where the file is written in a way that a careful change of lines does not reach.
    """
    try:
        before, _ = read_yaml(text, "the file")
    except BadYaml as error:
        raise CannotWrite(str(error)) from None
    lines = text.split("\n")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise CannotWrite("the file is not a mapping of settings")
    models = _entry(root, "models") if root is not None else None
    if models is None:
        while lines and not lines[-1].strip():
            lines.pop()
        new = [*lines, *([""] if lines else []), "models:", *_rule_lines(use, changes, "  ")]
        after = "\n".join(new) + "\n"
    elif not isinstance(models, yaml.SequenceNode) or models.flow_style or not models.value:
        raise CannotWrite("models is not a list with one rule per line; write the settings in by hand")
    else:
        rule = next((node for node in models.value if _scalar(node, "use") == use), None)
        if rule is None:
            at, dash = models.value[0].start_mark.line, lines[models.value[0].start_mark.line].index("-")
            lines[at:at] = _rule_lines(use, changes, " " * dash)
        else:
            _change(lines, rule, changes)
        after = "\n".join(lines)
    _check(before, after, use, changes)
    return after


def _entry(node: Any, key: str) -> Any:
    """The value of a key in a mapping; None where it has none."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _scalar(node: Any, key: str) -> str | None:
    found = _entry(node, key)
    return found.value if isinstance(found, yaml.ScalarNode) else None


def _rule_lines(use: str, changes: RuleChanges, indent: str) -> list[str]:
    model = use.partition("/")[2]
    tree: dict[str, Any] = {"match": model, "use": use}
    for path, value in changes.items():
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = value
    lines = [f"{key}: {_text(value)}" for key, value in tree.items()]
    return [f"{indent}- {lines[0]}", *(f"{indent}  {line}" for line in lines[1:])]


def _text(value: Any) -> str:
    """A value on one line. JSON is YAML; a plain word needs no quotes."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    return msgspec.json.encode(value).decode()


def _change(lines: list[str], rule: Any, changes: RuleChanges) -> None:
    """Change the lines of one rule, from its end upwards, so that the marks of what stands before stay right."""
    if rule.flow_style:
        tree = yaml.safe_load(yaml.serialize(rule))
        for path, value in changes.items():
            node = tree
            for step in path[:-1]:
                node = node.setdefault(step, {})
            node[path[-1]] = value
        _replace(lines, rule, _text(tree))
        return
    edits: list[tuple[int, int, Any, str]] = []
    added: dict[str, Any] = {}
    for path, value in changes.items():
        held = _entry(rule, path[0])
        if held is None:
            node = added
            for step in path[:-1]:
                node = node.setdefault(step, {})
            node[path[-1]] = value
        elif len(path) == 1:
            edits.append((held.start_mark.line, held.start_mark.column, held, _text(value)))
        else:
            inner = yaml.safe_load(yaml.serialize(held)) or {}
            if not isinstance(inner, dict):
                raise CannotWrite(f"{path[0]} of the rule is not a mapping")
            known = next((edit for edit in edits if edit[2] is held), None)
            if known is not None:
                edits.remove(known)
                inner = yaml.safe_load(known[3])
            node = inner
            for step in path[1:-1]:
                node = node.setdefault(step, {})
            node[path[-1]] = value
            edits.append((held.start_mark.line, held.start_mark.column, held, _text(inner)))
    column = rule.value[0][0].start_mark.column
    at = _last_line(rule) + 1
    lines[at:at] = [f"{' ' * column}{key}: {_text(value)}" for key, value in added.items()]
    for _, _, held, text in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        _replace(lines, held, text)


def _last_line(node: Any) -> int:
    """The last line on which anything of a node stands; the mark of a block's end is that of what follows it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        end: int = node.end_mark.line
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            end -= 1
        return end
    last = node.value[-1]
    return _last_line(last[1] if isinstance(last, tuple) else last)


def _replace(lines: list[str], node: Any, text: str) -> None:
    """Put a text where a node stands; a comment after it on its last line stays."""
    first, last = node.start_mark.line, _last_line(node)
    is_block = not isinstance(node, yaml.ScalarNode) and not node.flow_style
    if is_block:
        # Its key stands on the line before, or on the same.
        start = first - 1 if lines[first][: node.start_mark.column].strip() == "" else first
        head = lines[start].rstrip() if start != first else lines[start][: node.start_mark.column].rstrip()
        if any("#" in line for line in lines[first : last + 1]):
            raise CannotWrite("a comment stands inside of what would be changed; write the settings in by hand")
        lines[start : last + 1] = [f"{head} {text}"]
        return
    head, tail = lines[first][: node.start_mark.column], lines[last][node.end_mark.column :]
    lines[first : last + 1] = [f"{head}{text}{tail}"]


def _check(before: dict[str, Any], after: str, use: str, changes: RuleChanges) -> None:
    """The new text must say what was meant and nothing else."""
    try:
        now, _ = read_yaml(after, "the changed file")
    except BadYaml as error:
        raise CannotWrite(f"the changed file would not be valid: {error}") from None
    rules = now.get("models") or []
    rule = next((one for one in rules if isinstance(one, dict) and one.get("use") == use), {})
    for path, value in changes.items():
        held: Any = rule
        for step in path:
            held = held.get(step) if isinstance(held, dict) else None
        if held != (list(value) if isinstance(value, tuple) else value):
            raise CannotWrite(f"the changed file would not say {'.'.join(path)}: {_text(value)}")
    others = [one for one in rules if one is not rule]
    kept = [one for one in before.get("models") or [] if not (isinstance(one, dict) and one.get("use") == use)]
    if others != kept or {k: v for k, v in now.items() if k != "models"} != {k: v for k, v in before.items() if k != "models"}:
        raise CannotWrite("the changed file would say something else besides; write the settings in by hand")


def write(path: Path, text: str) -> None:
    """Replace the file at once, with its mode; a link stays a link."""
    place = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if place.exists():
            shutil.copymode(place, name)
        os.replace(name, place)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}") from None

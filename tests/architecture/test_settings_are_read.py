"""Every key of the configuration has a reader: a setting that is checked, shown and documented but changes nothing is a lie.

The reading is found in the syntax: an attribute of that name, taken from something that holds the right section. What holds a
section is told by annotations (`limits: Limits`), by the model itself (`config.limits`) and by assignments from either.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, get_args

import msgspec

from athena.shells.config import model

SOURCE = Path(__file__).parent.parent.parent / "src" / "athena"
NO_READERS = {"model", "check", "meaning", "display", "schema", "effects", "flat", "shipped"}
"""Modules of `shells/config` that check, show or rewrite settings without acting on them."""
READ_AT_ONCE = {(model.Config, "envelope_key_file"), (model.Upstream, "api_key_env"), (model.Upstream, "api_key_file")}
"""Where a secret is to be found: `meaning.py` fetches it while the configuration is loaded."""
NOT_USED = {(model.ProviderFormat, "format_version")}
"""Keys of other systems' files that are documented as accepted and not used."""

Section = type[msgspec.Struct]
RETURNED: dict[str, set[Section]] = {"verify": {model.GatewayKey}}
"""What functions return that are called in other modules than their own."""


def sections(kind: Section, found: dict[Section, None] | None = None) -> dict[Section, None]:
    """The section and every one inside of it."""
    found = found if found is not None else {}
    if kind not in found:
        found[kind] = None
        for field in msgspec.structs.fields(kind):
            for inner in sections_in(field.type):
                sections(inner, found)
    return found


def sections_in(annotation: Any) -> list[Section]:
    """The sections that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [inner for part in get_args(annotation) for inner in sections_in(part)]


class Readings(ast.NodeVisitor):
    """The settings that one module reads."""

    def __init__(self, kinds: dict[Section, None], *, by_text: bool = False) -> None:
        """`by_text`: tables of the module name what it reads, so a text that is a key's name counts too."""
        self.by_text = by_text
        self.by_name = {kind.__name__: kind for kind in kinds}
        self.holders: dict[str, set[Section]] = defaultdict(set)
        self.holders["config"].add(model.Config)
        for kind in kinds:
            for field in msgspec.structs.fields(kind):
                self.holders[field.name].update(sections_in(field.type))
        self.read: set[tuple[Section, str]] = set()
        self.learnt = False

    def of(self, node: ast.expr) -> set[Section]:
        """The sections that an expression may hold."""
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self.holders.get(name, set()) | self.holders.get(name.lstrip("_"), set())
            case ast.Subscript(value=value):
                return self.of(value)
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "items" | "values")):
                return self.of(value)
            case ast.IfExp(body=body):
                return self.of(body)
            case ast.BoolOp(values=[first, *_]):
                return self.of(first)
            case ast.Call(func=ast.Name(id=name)):
                made = {self.by_name[name]} if name in self.by_name else RETURNED.get(name, set())
                return made & set(self.by_name.values())
            case _:
                return set()

    def learn(self, target: ast.expr, kinds: set[Section]) -> None:
        """From now on this name may hold them."""
        if isinstance(target, ast.Tuple):
            for item in target.elts:
                self.learn(item, kinds)
        elif isinstance(target, ast.Name | ast.Attribute):
            name = target.id if isinstance(target, ast.Name) else target.attr
            self.learnt |= not kinds <= self.holders[name]
            self.holders[name] |= kinds

    def annotated(self, annotation: ast.expr | None) -> set[Section]:
        if annotation is None:
            return set()
        names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        return {self.by_name[name] for name in names if name in self.by_name}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if node.name in self.by_name:
            self.learn(ast.Name("self"), {self.by_name[node.name]})
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if self.by_text and isinstance(node.value, str):
            self.by_pattern(re.escape(node.value))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if self.by_text:
            parts = (re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z]+" for part in node.values)
            self.by_pattern("".join(parts))

    def by_pattern(self, pattern: str) -> None:
        for kind in self.by_name.values():
            self.read |= {(kind, name) for name in kind.__struct_fields__ if re.fullmatch(pattern, name)}

    def visit_arg(self, node: ast.arg) -> None:
        self.learn(ast.Name(node.arg), self.annotated(node.annotation))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.learn(node.target, self.annotated(node.annotation))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for one, value in zip(target.elts, node.value.elts, strict=True):
                    self.learn(one, self.of(value))
            else:
                self.learn(target, self.of(node.value))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.learn(node.target, self.of(node.iter))
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.learn(node.target, self.of(node.iter))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        for kind in self.of(node.value):
            if node.attr in kind.__struct_fields__:
                self.read.add((kind, node.attr))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "asdict":
            self.read |= {(kind, name) for kind in self.of(node.args[0]) for name in kind.__struct_fields__}
        self.generic_visit(node)


def readings(path: Path, kinds: dict[Section, None], *, by_text: bool = False) -> set[tuple[Section, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = Readings(kinds, by_text=by_text)
    while True:
        found.learnt = False
        found.visit(tree)
        if not found.learnt:
            return found.read


def unread(source: Path) -> list[str]:
    """The keys that nothing below this folder reads."""
    config = source / "shells" / "config"
    paths = [path for room in ("serving", "shells") for path in (source / room).rglob("*.py")]
    acting = [path for path in paths if path.parent != config or path.stem not in NO_READERS]
    kinds, short_kinds = sections(model.Config), sections(model.FlatKeys)
    # `flat.py` turns the short form into the full one, by tables, of which one is the neighbour's.
    read = readings(config / "flat.py", short_kinds, by_text=True)
    read |= readings(config / "sources.py", short_kinds, by_text=True) & {(model.FlatKeys, "api_key_file")}
    # `model.py` too: `Limits.core` hands the section's own values on.
    for path in (*acting, config / "model.py"):
        read |= readings(path, kinds)
    read |= readings(config / "meaning.py", kinds) & READ_AT_ONCE
    known = {(kind, name): None for kind in kinds | short_kinds for name in kind.__struct_fields__}
    return [f"{kind.__name__}.{name}" for kind, name in known if (kind, name) not in read | NOT_USED]


def test_every_setting_is_read() -> None:
    assert unread(SOURCE) == []


def test_a_setting_without_a_reader_is_found(tmp_path: Path) -> None:
    """The test above can fail: where one reader is taken away, its setting is named."""
    for room in ("serving", "shells"):
        for path in (SOURCE / room).rglob("*.py"):
            copy = tmp_path / path.relative_to(SOURCE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8")
            copy.write_text(
                text.replace("config.metrics.enabled", "config.metrics").replace("upstream.keep_idle_s", "20"), encoding="utf-8"
            )
    assert unread(tmp_path) == ["Upstream.keep_idle_s", "MetricsSettings.enabled"]

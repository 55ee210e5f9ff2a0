"""A tree of settings as structs, with every problem gathered: unknown keys warn, bad values are named with key and remedy.

msgspec would stop at the first bad value; here each field is read on its own. Values may come as text (environment, flags, a
port in quotes), so a number or a boolean is also read from its text.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from athena.shells.config.places import KeyPath, Report, Tree, did_you_mean
from athena.shells.config.secret import Secret

StructT = TypeVar("StructT", bound=msgspec.Struct)

_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class _Bad(Exception):
    """This value cannot be used; the report has it already."""


@cache
def struct_fields(struct: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    """The fields of a struct by name."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {field.name: field for field in info.fields}


def build(struct: type[StructT], tree: Tree, path: KeyPath, report: Report) -> StructT:
    """The struct. What is bad is in the report and has its default here, so that the checks of meaning can still run.

    A required text that is missing or bad is empty; no good one is.
    """
    fields = struct_fields(struct)
    for key in tree:
        if key not in fields:
            report.unknown_key((*path, key), fields)
    values: Tree = {name: "" for name, field in fields.items() if field.required}
    for name, field in fields.items():
        value = tree.get(name)
        if value is None:
            if field.required:
                report.error(path, f"{name} is missing", f"add {name}")
            continue
        with suppress(_Bad):
            values[name] = _read(field.type, value, (*path, name), report)
    return struct(**values)


def _read(kind: inspect.Type, value: Any, path: KeyPath, report: Report) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _read(kind.type, value, path, report)
    if isinstance(kind, inspect.AnyType):
        return value
    if isinstance(kind, inspect.UnionType):
        return _read(_member(kind, value, path, report), value, path, report)
    if isinstance(kind, inspect.StructType):
        return _read_struct(kind, value, path, report)
    if isinstance(kind, inspect.DictType):
        return _read_mapping(kind, value, path, report)
    if isinstance(kind, inspect.VarTupleType):
        return _read_list(kind, value, path, report)
    return _read_leaf(kind, value, path, report)


def _member(kind: inspect.UnionType, value: Any, path: KeyPath, report: Report) -> inspect.Type:
    """The member of a union that fits the value's shape."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    if len(members) == 1:
        return members[0]
    for member in members:
        inner = member.type if isinstance(member, inspect.Metadata) else member
        if isinstance(inner, inspect.StructType) and isinstance(value, dict):
            return member
        if isinstance(inner, inspect.VarTupleType) and isinstance(value, list):
            return member
        if isinstance(inner, inspect.StrType) and isinstance(value, str):
            return member
        if isinstance(inner, inspect.BoolType) and (isinstance(value, bool) or str(value).lower() in _BOOLEANS):
            return member
    raise _bad(report, path, f"must be {' or '.join(_describe(member) for member in members)}, not {_name(value)}")


def _read_struct(kind: inspect.StructType, value: Any, path: KeyPath, report: Report) -> msgspec.Struct:
    if not isinstance(value, dict):
        raise _bad(report, path, f"must be a mapping of settings, not {_name(value)}")
    return build(kind.cls, value, path, report)


def _read_mapping(kind: inspect.DictType, value: Any, path: KeyPath, report: Report) -> Tree:
    if not isinstance(value, dict):
        raise _bad(report, path, f"must be a mapping, not {_name(value)}")
    found: Tree = {}
    for key, item in value.items():
        if item is None and not isinstance(kind.value_type, inspect.AnyType):
            report.error((*path, key), "has no value")
            continue
        with suppress(_Bad):
            found[key] = _read(kind.value_type, item, (*path, key), report)
    return found


def _read_list(kind: inspect.VarTupleType, value: Any, path: KeyPath, report: Report) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _bad(report, path, f"must be a list, not {_name(value)}", "write [a, b] or one item per line after -")
    found: list[Any] = []
    for index, item in enumerate(value):
        try:
            found.append(_read(kind.item_type, item, (*path, index), report))
        except _Bad:
            found.append(_stand_in(kind.item_type))  # the items after it keep their numbers
    return tuple(found)


def _stand_in(kind: inspect.Type) -> Any:
    """What takes the place of a bad item of a list."""
    if isinstance(kind, inspect.StructType):
        return kind.cls(**{field.name: "" for field in kind.fields if field.required})
    return ""


def _read_leaf(kind: inspect.Type, value: Any, path: KeyPath, report: Report) -> Any:
    match kind:
        case inspect.LiteralType():
            return _read_word(kind, value, path, report)
        case inspect.CustomType():
            if isinstance(value, Secret):
                return value
            if isinstance(value, str):
                return Secret(value)
            raise _bad(report, path, f"must be text, not {_name(value)}", "put it in quotes")
        case inspect.BoolType():
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.lower() in _BOOLEANS:
                return _BOOLEANS[value.lower()]
            raise _bad(report, path, f"must be true or false, not {_shown(value, path, report)}")
        case inspect.IntType() | inspect.FloatType():
            return _read_number(kind, value, path, report)
        case inspect.StrType():
            return _read_text(kind, value, path, report)
    raise AssertionError(f"no reader for {kind}")  # pragma: no cover - a new kind of field in model.py needs one


def _read_word(kind: inspect.LiteralType, value: Any, path: KeyPath, report: Report) -> str:
    words = [str(word) for word in kind.values]
    if isinstance(value, str) and value.lower() in words:
        return value.lower()
    message = f"must be one of {', '.join(words)}, not {_shown(value, path, report)}"
    hint = did_you_mean(value, words) if isinstance(value, str) else ""
    raise _bad(report, path, message, hint if hint.startswith("did") else "")


def _read_number(kind: inspect.IntType | inspect.FloatType, value: Any, path: KeyPath, report: Report) -> int | float:
    whole = isinstance(kind, inspect.IntType)
    number = value
    if isinstance(value, str):
        try:
            number = int(value) if whole else float(value)
        except ValueError:
            number = None
    fits = isinstance(number, int if whole else (int, float)) and not isinstance(number, bool)
    if fits and not whole:
        number = float(number)
        fits = number == number and abs(number) != float("inf")
    if not fits or not _in_bounds(kind, number):
        raise _bad(report, path, f"must be {_describe(kind)}, not {_shown(value, path, report)}")
    result: int | float = number
    return result


def _in_bounds(kind: inspect.IntType | inspect.FloatType, number: float) -> bool:
    return not (
        (kind.ge is not None and number < kind.ge)
        or (kind.gt is not None and number <= kind.gt)
        or (kind.le is not None and number > kind.le)
        or (kind.lt is not None and number >= kind.lt)
    )


def _read_text(kind: inspect.StrType, value: Any, path: KeyPath, report: Report) -> str:
    if not isinstance(value, str):
        remedy = "put it in quotes" if isinstance(value, int | float) else ""
        raise _bad(report, path, f"must be text, not {_name(value)}", remedy)
    if kind.min_length and len(value) < kind.min_length:
        raise _bad(report, path, "must not be empty")
    if kind.pattern is not None and re.search(kind.pattern, value) is None:
        raise _bad(report, path, f"must fit the pattern {kind.pattern}")
    return value


def _describe(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _describe(kind.type)
        case inspect.IntType() | inspect.FloatType():
            words = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            low = f"of at least {kind.ge:g}" if kind.ge is not None else f"above {kind.gt:g}" if kind.gt is not None else ""
            if kind.ge is not None and kind.le is not None:
                return f"{words} from {kind.ge:g} to {kind.le:.0f}"
            high = f"and at most {kind.le:.0f}" if kind.le is not None else ""
            return " ".join(word for word in (words, low, high) if word)
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return "true or false"
        case inspect.VarTupleType():
            return "a list"
    return "a mapping"


def _name(value: Any) -> str:
    """What kind of value was given; never the value, which may be secret."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return "nothing"


def _shown(value: Any, path: KeyPath, report: Report) -> str:
    """A plain value as it was written, `${NAME}` unexpanded; used only for fields that hold no secrets."""
    value = report.layout.unexpanded.get(path, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        text = str(value)
        return repr(text[:40] + ("..." if len(text) > 40 else "")) if isinstance(value, str) else text
    return _name(value)


def _bad(report: Report, path: KeyPath, message: str, remedy: str = "") -> _Bad:
    report.error(path, message, remedy)
    return _Bad()

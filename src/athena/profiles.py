"""Upstream profiles: the rows of `profiles.toml` as `Profile` values.

A row is a table `[name]` with fields of `Profile`. `inherits = "other"` starts from that row, its model rows included;
`default = true` makes it the row for its dialect when none is named, and `elsewhere = "other"` beside it names the row for
servers that speak the dialect and are not its vendor's. `[[name.models]]` rows override fields for the models
whose name matches `match`: one pattern or a list of them, where `*` stands for any text and `?` for one character, whatever the
case. The longest matching pattern wins, of equally long ones the later row, and only that one row applies.

Everything is read and checked when the text is parsed, so a lookup builds nothing.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from athena.errors import ConfigError
from athena.model.profile import Profile
from athena.typed_values import reader

__all__ = ["ModelPattern", "ProfileTable", "default_profiles", "parse_profiles", "profile_for", "read_profile"]


read_profile = reader(Profile)


class ModelPattern:
    """A model name with `*` and `?` in it. Each piece between stars is searched once, so no name makes it slow."""

    __slots__ = ("_last_length", "_needle", "_pieces", "text")

    def __init__(self, text: str) -> None:
        self.text = text.lower()
        pieces = self.text.split("*")
        self._pieces = [re.compile(re.escape(piece).replace(r"\?", "."), re.S) for piece in pieces]
        self._last_length = len(pieces[-1])
        self._needle = max(re.split(r"[*?]", self.text), key=len)

    def matches(self, model: str) -> bool:
        """Does the whole name fit? `model` is in lower case."""
        if self._needle not in model:
            return False
        first, last = self._pieces[0], self._pieces[-1]
        if len(self._pieces) == 1:
            return first.fullmatch(model) is not None
        found = first.match(model)
        for piece in self._pieces[1:-1]:
            if found is None:
                return False
            # The leftmost place leaves most room for the pieces after it, so no other place need be tried.
            found = piece.search(model, found.end())
        start = len(model) - self._last_length
        return found is not None and start >= found.end() and last.fullmatch(model, start) is not None


class _ModelRow(msgspec.Struct, frozen=True):
    pattern: ModelPattern
    profile: Profile


class _Rows(msgspec.Struct, frozen=True):
    """One profile and its model rows, the first match being the one that counts."""

    base: Profile
    models: tuple[_ModelRow, ...]


class ProfileTable:
    __slots__ = ("_defaults", "_elsewhere", "_rows")

    def __init__(self, rows: dict[str, _Rows], defaults: dict[str, str], elsewhere: dict[str, str]) -> None:
        self._rows = rows
        self._defaults = defaults
        self._elsewhere = elsewhere

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._rows))

    def get(self, name: str, model: str = "") -> Profile:
        """The profile for one model of an upstream. Raises ConfigError for an undefined name."""
        rows = self._rows.get(name)
        if rows is None:
            raise ConfigError(f"unknown profile {name!r}; known: {', '.join(self.names())}", path="profile")
        return _named(rows, model) or rows.base

    def for_dialect(self, dialect: str, model: str = "") -> Profile:
        """The profile for the dialect itself, as its vendor serves it."""
        name = self._defaults.get(dialect)
        return Profile(dialect=dialect) if name is None else self.get(name, model)

    def for_unknown_host(self, dialect: str, model: str = "") -> Profile:
        """The profile for a server at an unknown address.

        A model that the vendor's row knows by name has the vendor's limits wherever it is served. Any other model is somebody
        else's behind an imitation of the dialect, and must not be held to the limits of the vendor's newest.
        """
        name = self._elsewhere.get(dialect)
        if name is None:
            return self.for_dialect(dialect, model)
        known = _named(self._rows[self._defaults[dialect]], model)
        # The server's streams are not known to be clean.
        return self.get(name, model) if known is None else msgspec.structs.replace(known, clean=False)


def _named(rows: _Rows, model: str) -> Profile | None:
    """The profile of the row that names the model."""
    lowered = model.lower()
    return next((row.profile for row in rows.models if row.pattern.matches(lowered)), None)


def parse_profiles(text: str) -> ProfileTable:
    """Profiles from TOML text. Raises ConfigError that names the row and the key at fault."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"profiles: not valid TOML: {error}") from error
    sources = {name: _Source(name, table) for name, table in tables.items()}
    rows = {name: _rows(name, sources) for name in sources}
    defaults: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for name, source in sources.items():
        dialect = rows[name].base.dialect
        first = defaults.setdefault(dialect, name) if source.default else name
        if first != name:
            raise ConfigError(
                f"profiles: {name}.default: {first} is already the default of its dialect", path=f"{name}.default"
            )
        if source.elsewhere is not None:
            if not source.default or source.elsewhere not in rows or rows[source.elsewhere].base.dialect != dialect:
                raise ConfigError(
                    f"profiles: {name}.elsewhere must name another profile of the dialect whose default this is",
                    path=f"{name}.elsewhere",
                )
            elsewhere[dialect] = source.elsewhere
    return ProfileTable(rows, defaults, elsewhere)


@cache
def default_profiles() -> ProfileTable:
    """The profiles that ship with the package."""
    return parse_profiles(resources.files("athena").joinpath("profiles.toml").read_text("utf-8"))


def profile_for(profile: str | Profile | None, dialect: str, model: str = "") -> Profile:
    """The profile that a caller gave, by value or by name, or else the one of the dialect as its vendor serves it."""
    if isinstance(profile, Profile):
        return profile
    table = default_profiles()
    return table.get(profile, model) if profile else table.for_dialect(dialect, model)


class _Source:
    """One `[name]` table, its parts told apart and each checked on its own."""

    __slots__ = ("default", "elsewhere", "fields", "inherits", "models")

    def __init__(self, name: str, table: object) -> None:
        if not isinstance(table, dict):
            raise ConfigError(f"profiles: {name} must be a table of fields", path=name)
        self.inherits = table.get("inherits")
        if self.inherits is not None and not isinstance(self.inherits, str):
            raise ConfigError(f"profiles: {name}.inherits must be the name of a profile", path=f"{name}.inherits")
        self.default = table.get("default", False)
        if not isinstance(self.default, bool):
            raise ConfigError(f"profiles: {name}.default must be true or false", path=f"{name}.default")
        self.elsewhere = table.get("elsewhere")
        if self.elsewhere is not None and not isinstance(self.elsewhere, str):
            raise ConfigError(f"profiles: {name}.elsewhere must be the name of a profile", path=f"{name}.elsewhere")
        own = ("default", "elsewhere", "inherits", "models")
        self.fields = {key: value for key, value in table.items() if key not in own}
        _convert(self.fields, name)
        models = table.get("models", [])
        if not isinstance(models, list):
            raise ConfigError(f"profiles: {name}.models must be an array of tables", path=f"{name}.models")
        self.models = [_model_source(row, f"{name}.models[{index}]") for index, row in enumerate(models)]


def _model_source(row: object, label: str) -> tuple[str, list[str], dict[str, Any]]:
    """(label, patterns, fields) of one model row."""
    if not isinstance(row, dict):
        raise ConfigError(f"profiles: {label} must be a table of fields", path=label)
    match = row.get("match")
    patterns = [match] if isinstance(match, str) else match
    if not isinstance(patterns, list) or not patterns or not all(isinstance(item, str) and item for item in patterns):
        raise ConfigError(f"profiles: {label}.match must be a pattern or a list of patterns", path=f"{label}.match")
    fields = {key: value for key, value in row.items() if key != "match"}
    _convert(fields, label)
    return label, patterns, fields


def _rows(name: str, sources: dict[str, _Source]) -> _Rows:
    """A profile with what it inherits. Inherited model rows are tried over the heir's own fields."""
    fields: dict[str, Any] = {}
    models: list[tuple[str, list[str], dict[str, Any]]] = []
    for ancestor in _lineage(name, sources):
        fields |= sources[ancestor].fields
        models += sources[ancestor].models
    fields["name"] = name
    rows = [
        _ModelRow(ModelPattern(pattern), profile)
        for label, patterns, own in models
        for profile in (_convert(fields | own, label, named=True),)
        for pattern in patterns
    ]
    # A stable sort of the reversed list: longest first, and of equally long ones the later.
    rows.reverse()
    rows.sort(key=lambda row: -len(row.pattern.text))
    return _Rows(_convert(fields, name, named=True), tuple(rows))


def _lineage(name: str, sources: dict[str, _Source]) -> list[str]:
    """The names a profile inherits from, farthest first, itself last."""
    line = [name]
    while (parent := sources[line[-1]].inherits) is not None:
        if parent not in sources:
            raise ConfigError(f"profiles: {line[-1]}.inherits names unknown profile {parent!r}", path=f"{line[-1]}.inherits")
        if parent in line:
            raise ConfigError(
                f"profiles: {name}.inherits: it inherits from itself: {' -> '.join([*line, parent])}", path=f"{name}.inherits"
            )
        line.append(parent)
    return line[::-1]


def _convert(fields: dict[str, Any], label: str, *, named: bool = False) -> Profile:
    """The fields as a Profile, or a ConfigError that names row and key."""
    if "name" in fields and not named:
        raise ConfigError(f"profiles: {label}.name: a profile's name is its table's name", path=f"{label}.name")
    try:
        return read_profile(fields)
    except msgspec.ValidationError as error:
        message = str(error)
        key = re.search(r"at `\$\.?([^`]*)`|unknown field `([^`]*)`", message)
        path = f"{label}.{key.group(1) or key.group(2)}" if key and (key.group(1) or key.group(2)) else label
        raise ConfigError(f"profiles: {path}: {message}", path=path) from error

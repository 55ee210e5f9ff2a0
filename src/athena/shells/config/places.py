"""Where a value of the configuration came from, and the list of what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import msgspec

from athena.errors import ConfigError, ConfigProblem

KeyPath = tuple[str | int, ...]
Tree = dict[str, Any]

RANK_DEFAULT, RANK_HOME, RANK_DIRECTORY, RANK_ENVIRONMENT, RANK_FLAG = range(5)
"""Who wins over whom, later over earlier."""


class SettingOrigin(msgspec.Struct, frozen=True):
    """Where a value comes from: a flag, a variable, or a file and line."""

    source: str
    line: int | None = None
    rank: int = RANK_DEFAULT
    key: str = ""
    """The key as the user wrote it, where it is not the key of the full form."""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place} ({self.key})" if self.key and self.key != self.source else place


DEFAULT_ORIGIN = SettingOrigin("default")


def show_path(path: KeyPath) -> str:
    """`models[0].use`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    by_fold = {item.lower(): item for item in known}
    found = difflib.get_close_matches(name.lower(), by_fold, n=1, cutoff=0.6)
    return by_fold[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy: the nearest name, else all of them."""
    names = sorted(known)
    best = nearest(name, names)
    if best is not None:
        return f"did you mean {best}?"
    return f"known: {', '.join(names)}" if names else ""


class Layout:
    """A tree of settings and the origin of each of its values."""

    __slots__ = ("origins", "tree", "unexpanded")

    def __init__(self, tree: Tree | None = None, origins: dict[KeyPath, SettingOrigin] | None = None) -> None:
        self.tree: Tree = {} if tree is None else tree
        self.origins: dict[KeyPath, SettingOrigin] = {} if origins is None else origins
        self.unexpanded: dict[KeyPath, str] = {}
        """Texts as they stood before `${NAME}` was replaced."""

    def origin(self, path: KeyPath) -> SettingOrigin:
        """Where the value came from; a value inside a list or mapping may only know its container's origin."""
        while path:
            if path in self.origins:
                return self.origins[path]
            path = path[:-1]
        return DEFAULT_ORIGIN

    def rank(self, *path: str) -> int:
        """The highest rank of anything at or below a path."""
        length = len(path)
        return max((origin.rank for key, origin in self.origins.items() if key[:length] == path), default=RANK_DEFAULT)

    def drop(self, *path: str) -> None:
        """Forget the value at a path and where it came from."""
        node: Any = self.tree
        for step in path[:-1]:
            node = node.get(step, {}) if isinstance(node, dict) else {}
        if isinstance(node, dict):
            node.pop(path[-1], None)
        length = len(path)
        for table in (self.origins, self.unexpanded):
            for key in [key for key in table if key[:length] == path]:
                del table[key]

    def put(self, path: KeyPath, value: Any, origin: SettingOrigin) -> None:
        """Set a value, making the mappings on the way. Where something else stands in the way, that is at fault and stays."""
        node: Any = self.tree
        for step in path[:-1]:
            if not isinstance(node, dict):
                return
            node = node.setdefault(step, {})
        if not isinstance(node, dict):
            return
        node[path[-1]] = value
        self.origins[path] = origin


UNKNOWN_KEY = "unknown key, not used"
"""A warning at the start, since a newer file should not stop an older gateway; `athena config check` fails on it."""
_GONE: dict[KeyPath, tuple[str, str]] = {
    ("server",): (
        "there is no choice of a server any more, not used",
        "leave it out: Athena's own server serves; to run under uvicorn, start `uvicorn --factory athena.asgi:create_app`",
    ),
}
"""Settings that are gone, with what to do about them."""


class Report:
    """Everything that is wrong, gathered; nothing stops at the first."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.problems: list[ConfigProblem] = []

    def error(self, path: KeyPath, message: str, remedy: str = "") -> None:
        """A bad value: the start stops."""
        self._add(path, message, remedy, fatal=True)

    def warn(self, path: KeyPath, message: str, remedy: str = "") -> None:
        """Something odd that does not stop the start."""
        self._add(path, message, remedy, fatal=False)

    def add(self, problem: ConfigProblem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def unknown_key(self, path: KeyPath, known: Iterable[str]) -> None:
        """An unknown key: a warning that names the nearest known one, or what became of a key of earlier versions."""
        if path in _GONE:
            self.warn(path, *_GONE[path])
            return
        self.warn(path, UNKNOWN_KEY, did_you_mean(str(path[-1]), known))

    @property
    def failed(self) -> bool:
        """Was there anything that stops the start?"""
        return any(problem.fatal for problem in self.problems)

    @property
    def warnings(self) -> tuple[ConfigProblem, ...]:
        """What does not stop the start."""
        return tuple(problem for problem in self.problems if not problem.fatal)

    def stop_if_failed(self) -> None:
        """Raise one error with all problems, if there are any."""
        if self.failed:
            raise ConfigError.of(tuple(sorted(self.problems, key=lambda problem: (problem.source, problem.line or 0))))

    def _add(self, path: KeyPath, message: str, remedy: str, *, fatal: bool) -> None:
        origin = self.layout.origin(path)
        key = origin.key if origin.key and path in self.layout.origins else show_path(path)
        source = "" if origin is DEFAULT_ORIGIN else origin.source
        self.add(ConfigProblem(message, "" if key == source else key, source, origin.line, remedy, fatal))

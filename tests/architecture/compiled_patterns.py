"""Reports every regular expression that the package compiles. A program of its own, because it puts itself under `re`.

It imports every module, builds every search of every format, reads every case of every format, and calls by name the few
functions that build an expression while they run. It prints one JSON object: the places that were seen compiling one, and what
is refused in which expression (`refused_in`).
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from re import _constants, _parser  # type: ignore[attr-defined]  # the tree of an expression is told by nothing public
from typing import Any

SOURCE = Path(__file__).parents[2] / "src" / "athena"
_PLAIN_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_ONE_CHARACTER = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN)


def refused_in(tree: Any) -> Iterator[str]:
    """What may not be in a parsed expression: a group that is repeated possessively, or without a bound.

    CPython before 3.11.5 repeats a group possessively beyond where it fits (python/cpython#106052); a single character, for
    which it has an instruction of its own, it repeats right. An atomic group says nothing that could not be said without. A
    plain repeat of a group remembers every round, about 150 bytes each, so that without a bound a long text takes much memory.
    """
    for operation, arguments in tree:
        if operation is _constants.ATOMIC_GROUP:
            yield "an atomic group"
        if operation is _constants.POSSESSIVE_REPEAT and not _is_one_character(arguments[2]):
            yield "a possessive repeat of a group"
        if operation in _PLAIN_REPEATS and arguments[1] == _constants.MAXREPEAT and not _is_one_character(arguments[2]):
            yield "an unbounded repeat of a group"
        for inner in _inner(arguments):
            yield from refused_in(inner)


def _is_one_character(item: Any) -> bool:
    if len(item) != 1:
        return False
    operation, arguments = item[0]
    if operation is _constants.SUBPATTERN:
        group, *_, inner = arguments
        return group is None and _is_one_character(inner)
    return operation in _ONE_CHARACTER


def _inner(arguments: Any) -> Iterator[Any]:
    if isinstance(arguments, _parser.SubPattern):
        yield arguments
    elif isinstance(arguments, list | tuple):
        for argument in arguments:
            yield from _inner(argument)


class Recorder:
    """Where the package compiles expressions, and what is refused in them."""

    def __init__(self) -> None:
        self.places: set[tuple[str, int]] = set()
        self.refused: dict[str, str] = {}
        self.count = 0
        self._by_us = False
        self._compile: Callable[..., Any] = re._compile  # type: ignore[attr-defined]  # all functions of `re` go through it
        self._parse: Callable[..., Any] = _parser.parse

    def install(self) -> None:
        re._compile = self._compiled  # type: ignore[attr-defined]  # as above
        _parser.parse = self._parsed

    def _compiled(self, pattern: Any, flags: int) -> Any:
        caller = sys._getframe(2)
        path = Path(caller.f_code.co_filename)
        self._by_us = path.is_relative_to(SOURCE)
        if self._by_us:
            self.places.add((path.relative_to(SOURCE).as_posix(), caller.f_lineno))
        return self._compile(pattern, flags)

    def _parsed(self, pattern: Any, flags: int = 0, state: Any = None) -> Any:
        tree = self._parse(pattern, flags, state)
        if self._by_us:
            self.count += 1
            for reason in refused_in(tree):
                self.refused[str(pattern)] = reason
        return tree


def run_formats() -> None:
    """Every format alone, with its declared tools, and all at once; every case whole and in pieces."""
    from athena.formats import format_names
    from athena.formats.machine.recognizer import recognizer
    from athena.formats.machine.scanner import Lexer
    from formats.case_files import TOOLS, case_files, chunked, declared, load, parse

    names = tuple(tool.name for tool in TOOLS)
    for format_id in (*format_names(), "auto"):
        recognizer(format_id).compile()
        recognizer(format_id).for_tools(names).compile()
    for path in case_files():
        file = load(path)
        for case in file.case:
            for size in (len(case.text) or 1, 7):
                parse(case, path.stem, declared(file), chunked(case.text, size))
    for lexer in [one for one in gc.get_objects() if isinstance(one, Lexer)]:
        _ = lexer.any, lexer.final, lexer.begin


def run_the_rest() -> None:
    """The functions outside the formats that build an expression out of something they are given."""
    from athena.calls import names
    from athena.formats.machine.detect import detect_format
    from athena.formats.machine.echo import EchoGuard, Passage
    from athena.profiles import default_profiles
    from athena.recording.secrets import Mask
    from athena.recording.words import Words
    from athena.serving.refusals import known_refusals
    from athena.shells.config.check import build
    from athena.shells.config.model import GatewayKey
    from athena.shells.config.places import Layout, Report
    from athena.shells.logs.redactor import Redactor
    from athena.shells.stream_mask import StreamMask

    for rule in (value for value in vars(names).values() if isinstance(value, names.NameRule)):
        names.NameMap([(None, "get time"), ("a", "0"), (None, "f")], rule)
    detect_format("some/model")
    markup = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    EchoGuard(lambda: [Passage(markup)]).quotes("f", "{}", "f[ARGS]{}")
    default_profiles()
    known_refusals()
    Redactor(["not-a-secret"])
    Words(b"key", frozenset(), frozenset()).text(b"some text")
    StreamMask(["not-a-secret"])
    Mask(["not-a-secret"]).data(b"not-a-secret")
    build(GatewayKey, {"hash": "sha256:" + "0" * 64}, (), Report(Layout()))
    from athena.formats.declared.build import declared_format
    from learning.invented import INVENTED

    for _, description in INVENTED.values():
        declared_format(description)


def main() -> None:
    recorder = Recorder()
    recorder.install()
    import athena

    for module in walk_packages(athena.__path__, "athena."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    run_formats()
    run_the_rest()
    print(json.dumps({"count": recorder.count, "places": sorted(recorder.places), "refused": recorder.refused}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

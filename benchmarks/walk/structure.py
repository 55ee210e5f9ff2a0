"""What the code between the core and the sockets is made of, read off its syntax: flags, timers, functions handed on, lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HOLDERS = (
    "exchange.py",
    "serving/serving.py",
    "serving/attempts.py",
    "serving/request_taps.py",
    "serving/clock.py",
    "shells/server/http.py",
    "shells/upstream/response.py",
    "shells/gateway/flow.py",
    "shells/gateway/relay.py",
    "shells/gateway/silence.py",
    "shells/gateway/driver.py",
    "transport/call.py",
    "transport/bodies.py",
    "shells/transport/bodies.py",
)
"""The modules that hold the state of one request on its way, in any of the checkouts."""
DRIVERS = (
    "shells/gateway/app.py",
    "shells/gateway/entrance.py",
    "shells/gateway/answer_endpoint.py",
    "shells/gateway/answers.py",
    "shells/gateway/reading.py",
    "shells/gateway/flow.py",
    "shells/gateway/relay.py",
    "shells/gateway/silence.py",
    "shells/gateway/driver.py",
    "transport/engine.py",
    "transport/call.py",
    "transport/bodies.py",
    "shells/transport/engine.py",
    "shells/transport/bodies.py",
)
"""The modules that take a request from a socket or an SDK and serve it."""
TIMERS = ("call_later", "call_at", "wait_for", "timeout")


def counts(source: Path) -> dict[str, int]:
    """The figures of the package at this place, by what they count."""
    holders = [ast.parse((source / name).read_text()) for name in HOLDERS if (source / name).exists()]
    return {
        "flags of a request's state": sum(len(_flags(node)) for tree in holders for node in _classes(tree)),
        "classes that set timers of their own": sum(_sets_timers(node) for tree in holders for node in _classes(tree)),
        "functions given to other objects to call": sum(_handed_on(node) for tree in holders for node in _classes(tree)),
        "lines of the drivers (gateway and transport)": sum(_lines(source / name) for name in DRIVERS),
        "lines of the serving core, without IO": sum(map(_lines, (source / "serving").glob("*.py"))),
        "lines of all of the package": sum(map(_lines, source.rglob("*.py"))),
        "imports from the transport into `shells.gateway`": sum(
            _imports(source / folder, "athena.shells.gateway") for folder in ("transport", "shells/transport")
        ),
        "imports into `shells` from packages beside it": sum(
            _imports(path, "athena.shells") for path in source.iterdir() if path.is_dir() and path.name != "shells"
        ),
    }


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _own(node: ast.AST) -> str | None:
    """The name of an attribute of `self`."""
    return (
        node.attr if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self" else None
    )


def _flags(kind: ast.ClassDef) -> set[str]:
    """The attributes that are set to True or False somewhere."""
    found: set[str] = set()
    pairs: list[tuple[ast.expr, ast.expr | None]]
    for node in ast.walk(kind):
        if isinstance(node, ast.AnnAssign):
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        else:
            continue
        found |= {name for target, value in pairs if (name := _own(target)) and _is_truth(value)}
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr | None]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _is_truth(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def _sets_timers(kind: ast.ClassDef) -> bool:
    calls = [node.func for node in ast.walk(kind) if isinstance(node, ast.Call)]
    return any(isinstance(called, ast.Attribute) and called.attr in TIMERS for called in calls)


def _handed_on(kind: ast.ClassDef) -> int:
    """Lambdas, partial functions and bound methods that are given to another object."""
    methods = {
        node.name
        for node in kind.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(map(_is_property, node.decorator_list))
    }
    calls = [node for node in ast.walk(kind) if isinstance(node, ast.Call)]
    here = {id(node.func) for node in calls}
    for node in calls:
        if _own(node.func) in methods or _is_partial(node):
            here |= {id(argument) for argument in node.args}
    given = (node for node in ast.walk(kind) if id(node) not in here and _is_read(node))
    return sum(isinstance(node, ast.Lambda) or _is_partial(node) or (_own(node) in methods) for node in given)


def _is_read(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _is_partial(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "partial"


def _is_property(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("property", "cached_property")


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def _imports(folder: Path, package: str) -> int:
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    names = [node.module or "" for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sum(name == package or name.startswith(package + ".") for name in names)

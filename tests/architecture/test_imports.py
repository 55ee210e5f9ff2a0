"""Who may import whom: the rooms of `design.md` 2, read off the import statements."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent.parent / "src" / "athena"

# A room sees the rooms named here and itself.
SEES: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors"},
    "wire": {"errors", "model"},
    "opaque": {"model"},
    "bounded_cache": set(),
    "schema_cost": {"wire"},
    "schemas": {"errors", "model", "wire"},
    "calls": {"errors", "model", "wire"},
    "profiles": {"errors", "model"},
    "dialects": {"errors", "model", "wire", "calls", "opaque", "schemas"},
    "formats": {"errors", "model", "wire", "calls", "bounded_cache"},
    "learning": {"errors", "model", "formats"},
    "prompted": {"errors", "model", "wire", "calls", "formats", "bounded_cache", "schema_cost"},
    "prepare": {"errors", "model", "wire", "calls", "opaque", "dialects", "prompted"},
    "restore": {"errors", "model", "wire", "calls", "opaque", "prepare"},
    "provenance": {"model", "calls", "formats", "prepare"},
    "answer_path": {
        "errors",
        "model",
        "wire",
        "calls",
        "opaque",
        "dialects",
        "formats",
        "prepare",
        "prompted",
        "provenance",
        "restore",
    },
    "exchange": {
        "answer_path",
        "errors",
        "model",
        "wire",
        "calls",
        "opaque",
        "dialects",
        "formats",
        "prepare",
        "restore",
        "prompted",
    },
    "serving": {
        "bounded_cache",
        "calls",
        "dialects",
        "errors",
        "exchange",
        "formats",
        "model",
        "opaque",
        "profiles",
        "prompted",
    },
    "recording": {
        "dialects",
        "errors",
        "exchange",
        "formats",
        "model",
        "opaque",
        "prompted",
        "serving",
        "wire",
    },
    "batch": {"errors", "model", "wire", "formats", "parsing", "bounded_cache"},
    "parsing": {"errors", "model", "wire", "calls", "formats"},
    "tool_adapter": {
        "errors",
        "model",
        "wire",
        "dialects",
        "exchange",
        "formats",
        "parsing",
        "prepare",
        "profiles",
        "prompted",
    },
    "streams": {"errors", "model", "calls", "dialects", "formats", "parsing", "profiles"},
    "translate": {
        "errors",
        "model",
        "wire",
        "calls",
        "opaque",
        "dialects",
        "exchange",
        "formats",
        "prepare",
        "profiles",
        "restore",
    },
}
IO_MODULES = {
    "asyncio",
    "socket",
    "ssl",
    "logging",
    "time",
    "random",
    "uuid",
    "os",
    "threading",
    "subprocess",
    "httpx",
    "httpx2",
}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in SEES)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    if room in ("shells", "asgi", "testing", "transport"):
        return
    assert room in SEES, f"{room} is a new room: say in this test what it may see"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "athena" and len(parts) > 1:
            assert parts[1] == room or parts[1] in SEES[room], f"{path.name} imports {name}"
        assert parts[0] not in IO_MODULES, f"{path.name} imports {name}: the core does no IO"


@pytest.mark.parametrize("room", ["dialects", "formats"])
def test_siblings_do_not_know_each_other(room: str) -> None:
    names = {path.stem if path.is_file() else path.name for path in (SOURCE / room).iterdir() if not path.name.startswith("_")}
    shared = {"base", "portable", "engine", "bodies", "typing", "repair", "detect", "stage", "parser"}
    for path in sorted((SOURCE / room).rglob("*.py")):
        own = path.relative_to(SOURCE / room).parts[0].removesuffix(".py")
        if own in shared or own == "__init__" or room == "formats":
            continue
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] == ["athena", room] and len(parts) > 2 and parts[2] in names - shared:
                assert parts[2] == own, f"{path} imports {name}"

"""Who may import whom, read off the import statements. Every room has its rule: a new one fails until it has one too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent.parent / "src" / "athena"

CORE: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors"},
    "wire": {"errors", "model"},
    "opaque": {"model"},
    "bounded_cache": set(),
    "typed_values": set(),
    "schema_cost": {"wire"},
    "schemas": {"errors", "model", "wire"},
    "calls": {"errors", "model", "wire"},
    "profiles": {"errors", "model", "typed_values"},
    "dialects": {"errors", "model", "wire", "calls", "opaque", "schemas"},
    "formats": {"errors", "model", "wire", "calls", "bounded_cache", "typed_values"},
    "learning": {"errors", "model", "formats"},
    "prompted": {"errors", "model", "wire", "calls", "formats", "bounded_cache", "schema_cost"},
    "prepare": {"errors", "model", "wire", "calls", "opaque", "dialects", "prompted"},
    "restore": {"errors", "model", "wire", "calls", "opaque", "prepare"},
    "provenance": {"model", "calls", "formats", "prepare"},
    "quality": {"errors", "model", "formats", "prompted"},
    "answer_path": {
        "errors", "model", "wire", "calls", "opaque", "dialects", "formats", "prepare", "prompted", "provenance", "restore",
        "state",
    },
    "advice": {"errors", "model"},
    "plain_answer": {"answer_path", "calls", "dialects", "formats", "model", "prepare", "wire"},
    "exchange": {
        "advice", "answer_path", "plain_answer", "errors", "model", "wire", "calls", "opaque", "dialects", "formats",
        "prepare", "restore", "prompted",
    },
    "serving": {
        "bounded_cache", "calls", "dialects", "errors", "exchange", "formats", "model", "opaque", "profiles", "prompted",
        "quality", "wire",
    },
    "state": {"errors", "model", "wire", "opaque"},
    "recording": {
        "advice", "dialects", "errors", "exchange", "formats", "model", "opaque", "prompted", "serving", "typed_values", "wire",
    },
    "verify": {
        "errors", "model", "wire", "dialects", "formats", "parsing", "prompted", "quality", "serving", "typed_values",
    },
    "websocket": {"errors", "model", "wire"},
    "bulk": {"errors"},
    "batch": {"errors", "model", "wire", "formats", "parsing", "bounded_cache", "typed_values"},
    "parsing": {"errors", "model", "wire", "calls", "formats"},
    "tool_adapter": {
        "errors", "model", "wire", "dialects", "exchange", "formats", "parsing", "prepare", "profiles", "prompted",
    },
    "streams": {"errors", "model", "wire", "calls", "dialects", "formats", "parsing", "profiles"},
    "translate": {
        "errors", "model", "wire", "calls", "opaque", "dialects", "exchange", "formats", "prepare", "profiles", "restore",
    },
}  # fmt: skip
"""The rooms without IO: each sees the rooms named here and itself."""

SHELLS: dict[str, set[str]] = {
    "shells.own_files": {"errors"},
    "shells.machine": set(),
    "shells.migrations": set(),
    "shells.sealing": {"state"},
    "shells.stream_mask": set(),
    "shells.demo": set(),
    "shells.demo_models": {"dialects", "errors", "model", "quality", "verify"},
    "shells.demo_server": {"shells.demo", "shells.demo_models"},
    "shells.templates": {"__version__", "errors", "formats", "learning"},
    "shells.config": {
        "bounded_cache", "calls", "dialects", "errors", "exchange", "formats", "model", "profiles", "prompted", "serving",
        "shells.own_files", "shells.templates", "typed_values",
    },
    "shells.logs": {"serving", "shells.config", "shells.own_files", "shells.stream_mask"},
    "shells.envelope_key": {"errors", "shells.config", "shells.own_files"},
    "shells.upstream": {"errors", "serving"},
    "shells.doctor": {
        "dialects", "errors", "exchange", "model", "profiles", "quality", "serving", "shells.config", "shells.upstream",
    },
    "shells.inspector": {"dialects", "formats", "recording", "shells.config"},
    "shells.recorder": {
        "errors", "model", "recording", "serving", "shells.config", "shells.migrations", "shells.own_files",
        "shells.stream_mask", "typed_values",
    },
    "shells.store": {"bulk", "errors", "shells.config", "shells.migrations", "shells.own_files", "state"},
    "shells.gateway": {
        "__version__", "calls", "dialects", "errors", "exchange", "formats", "model", "opaque", "profiles", "recording",
        "serving", "state", "websocket", "wire", "shells.config", "shells.envelope_key", "shells.inspector", "shells.logs",
        "shells.machine", "shells.recorder", "shells.sealing", "shells.store", "shells.stream_mask", "shells.upstream", "bulk",
        "typed_values",
    },
    "shells.server": {
        "dialects", "errors", "exchange", "formats", "model", "serving", "websocket", "shells.config", "shells.demo",
        "shells.demo_server", "shells.envelope_key", "shells.gateway", "shells.inspector", "shells.logs", "shells.machine",
        "shells.recorder",
    },
    "shells.verify": {
        "__version__", "dialects", "errors", "exchange", "model", "recording", "serving", "verify", "wire",
        "shells.config", "shells.gateway", "shells.inspector", "shells.logs", "shells.recorder",
    },
    "shells.temporary_gateway": {"errors", "shells.config", "shells.server"},
    "shells.daemon": {"__version__", "errors", "shells.logs", "shells.own_files", "shells.server"},
    "shells.agents": {"shells.config"},
    "shells.agent_run": {
        "errors", "shells.agents", "shells.config", "shells.daemon", "shells.own_files", "shells.temporary_gateway",
    },
    "shells.showcase": {"formats", "parsing", "translate"},
    "shells.setup": {"errors", "shells.config", "typed_values"},
    "shells.cli": {
        "__version__", "batch", "errors", "formats", "model", "parsing", "profiles", "quality", "recording",
        "serving", "verify", "shells.agent_run", "shells.agents",
        "shells.config", "shells.daemon", "shells.demo_server", "shells.doctor", "shells.inspector", "shells.own_files",
        "shells.recorder",
        "shells.server", "shells.setup", "shells.showcase", "shells.store", "shells.templates", "shells.temporary_gateway",
        "shells.gateway",
        "shells.upstream", "shells.verify",
    },
    "shells.transport": {
        "calls", "dialects", "errors", "exchange", "model", "opaque", "serving", "wire", "shells.config",
        "shells.envelope_key", "shells.logs",
    },
    "transport": {"shells.transport"},
    "testing": {"recording", "shells.recorder"},
    "asgi": {"errors", "shells.config", "shells.gateway", "shells.logs"},
    "__main__": {"shells.cli"},
    "__init__": {
        "batch", "calls", "errors", "formats", "model", "parsing", "shells.templates", "streams", "tool_adapter", "transport",
        "translate",
    },
}  # fmt: skip
"""The rooms that do IO, and the faces of the package. The transport sees settings, the envelope's key and the log of shells,
nothing that serves: what gateway and transport share is `serving`."""

SEES = CORE | SHELLS
IO_MODULES = {
    "asyncio", "httpx", "httpx2", "logging", "os", "random", "socket", "ssl", "subprocess", "threading", "time", "uuid",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of_name(parts: list[str]) -> str:
    """The room of a dotted name below `athena`."""
    return ".".join(parts[:2]) if parts[0] == "shells" and len(parts) > 1 else parts[0]


def room_of(path: Path) -> str:
    return room_of_name([part.removesuffix(".py") for part in path.relative_to(SOURCE).parts])


def imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def wrong_imports(path: Path) -> list[str]:
    """What a module imports against the rule of its room."""
    room = room_of(path)
    if room == "shells.__init__":
        return imports(path)
    assert room in SEES, f"{room} is a new room: say in this test what it may see"
    wrong: list[str] = []
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "athena" and len(parts) > 1:
            seen = room_of_name(parts[1:])
            if seen != room and seen not in SEES[room]:
                wrong.append(name)
        elif room in CORE and parts[0] in IO_MODULES:
            wrong.append(name)
    return wrong


def test_imports_go_one_way() -> None:
    assert {str(path.relative_to(SOURCE)): wrong for path in modules() if (wrong := wrong_imports(path))} == {}


def test_every_rule_is_of_a_room_that_is_there() -> None:
    there = {room_of(path) for path in modules()}
    assert set(SEES) <= there
    assert all(seen in there | {"__version__"} for sees in SEES.values() for seen in sees)


def test_rooms_stand_in_an_order() -> None:
    """No two rooms see each other, not even by way of others."""
    below: dict[str, set[str]] = {}
    waiting = dict(SEES)
    while waiting:
        ready = {room for room, sees in waiting.items() if sees - {"__version__"} <= set(below)}
        assert ready, f"these rooms see each other: {sorted(waiting)}"
        for room in ready:
            below[room] = waiting.pop(room)


def test_a_wrong_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    cases = {
        "formats/kimi_k2.py": ("from athena.dialects import get_dialect", "athena.dialects.get_dialect"),
        "serving/clock.py": ("import time", "time"),
        "shells/transport/clients.py": ("from athena.shells.gateway.app import Gateway", "athena.shells.gateway.app.Gateway"),
        "shells/upstream/pool.py": ("from athena.shells.config import Config", "athena.shells.config.Config"),
    }
    for name, (line, wrong) in cases.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line + "\n")
        assert wrong_imports(path) == [wrong]


SHARED = {
    "dialects": {"base", "decoders", "error_kinds", "losses", "openai_errors", "plain_reads", "portable", "recalled"},
    "formats": {"machine", "bodies", "declared"},
}
"""What siblings have in common, by room."""


@pytest.mark.parametrize("room", sorted(SHARED))
def test_siblings_do_not_know_each_other(room: str) -> None:
    """A dialect knows no other dialect, a format no other format; what several need is among what they share."""
    wrong = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        own = path.relative_to(SOURCE / room).parts[0].removesuffix(".py")
        # What is shared may not know who shares it.
        allowed = SHARED[room] | ({own} if own not in SHARED[room] else set())
        for name in imports(path):
            parts = name.split(".")
            if own != "__init__" and parts[:2] == ["athena", room] and len(parts) > 3 and parts[2] not in allowed:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def test_gateway_and_driver_know_little_of_each_other() -> None:
    """The driver moves the bytes of one request: the application makes it, and it knows nothing of the application."""
    assert not [name for name in imports(SOURCE / "shells" / "gateway" / "driver.py") if ".gateway.app" in name]

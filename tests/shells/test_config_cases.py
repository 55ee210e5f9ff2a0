"""The data files of `tests/cases/config`: what files, variables and flags mean, and what is said about their faults."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from athena.errors import ConfigError
from athena.shells.config import Loaded, Router, Secret, Sources, load, show
from support.trusted_files import trust

CASES = Path(__file__).parent.parent / "cases" / "config"


class ConfigCase(msgspec.Struct, forbid_unknown_fields=True):
    """Sources, and what comes of them."""

    name: str
    file: str | None = None
    home_file: str | None = None
    named_file: str | None = None
    environment: dict[str, str] = {}
    flags: dict[str, Any] = {}
    expect: dict[str, Any] = {}
    routes: dict[str, list[str]] = {}
    providers: dict[str, dict[str, Any]] = {}
    formats: dict[str, str] = {}
    tools: dict[str, str] = {}
    listed: list[str] | None = None
    hints: list[str] = []
    warnings: list[str] = []
    errors: list[str] = []
    exact: bool = False
    """Nothing else is said."""


def config_cases() -> list[ConfigCase]:
    """All cases."""
    found = []
    for file in sorted(CASES.glob("*.toml")):
        found += msgspec.convert(tomllib.loads(file.read_text("utf-8"))["case"], list[ConfigCase])
    return found


def sources_of(case: ConfigCase, root: Path) -> Sources:
    """The case's files on disk."""
    home, directory = root / "home", root / "directory"
    (home / ".config" / "athena").mkdir(parents=True)
    directory.mkdir()
    if case.home_file is not None:
        (home / ".config" / "athena" / "athena.yml").write_text(case.home_file, "utf-8")
    if case.file is not None:
        (directory / "athena.yml").write_text(case.file, "utf-8")
        trust(directory / "athena.yml", home)
    named = None
    if case.named_file is not None:
        named = directory / "named.yml"
        named.write_text(case.named_file, "utf-8")
    return Sources(flags=case.flags, environment=case.environment, config_file=named, directory=directory, home=home)


def value_at(value: Any, dotted: str) -> Any:
    """The value at a dotted path, as plain data."""
    for step in dotted.split("."):
        if isinstance(value, msgspec.Struct):
            value = getattr(value, step)
        elif isinstance(value, tuple):
            value = value[int(step)]
        else:
            value = value[step]
    if isinstance(value, Secret):
        return value.reveal()
    if value is None:
        return "none"
    return msgspec.json.decode(msgspec.json.encode(value))


def assert_said(found: list[str], wanted: list[str], *, exact: bool) -> None:
    """Each wanted text begins or is part of something that was said."""
    for text in wanted:
        assert any(text in line for line in found), f"{text!r} is missing in {found}"
    if exact:
        assert len(found) == len(wanted), found


@pytest.mark.parametrize("case", config_cases(), ids=lambda case: case.name)
def test_case(case: ConfigCase, tmp_path: Path) -> None:
    sources = sources_of(case, tmp_path)
    if case.errors:
        with pytest.raises(ConfigError) as caught:
            load(sources)
        problems = caught.value.problems
        assert_said([str(problem) for problem in problems if problem.fatal], case.errors, exact=case.exact)
        assert_said([str(problem) for problem in problems if not problem.fatal], case.warnings, exact=False)
        assert "hunter2" not in str(caught.value)
        assert "my-secret-key" not in str(caught.value)
        return
    loaded = load(sources)
    assert_said([str(problem) for problem in loaded.warnings], case.warnings, exact=case.exact or not case.warnings)
    for path, value in case.expect.items():
        assert value_at(loaded.config, path) == value, path
    for hint in case.hints:
        assert any(hint in line for line in loaded.hints)
    assert_routes(case, loaded)
    assert "canary" not in show(loaded) + repr(loaded) + str(loaded.config) + repr(loaded.warnings) + repr(loaded.hints)


def assert_routes(case: ConfigCase, loaded: Loaded) -> None:
    """The case's expectations of the router."""
    router = Router(loaded.config)
    for model, targets in case.routes.items():
        assert [f"{route.upstream_name}/{route.model}" for route in router.resolve(model)] == targets, model
    for model, provider in case.providers.items():
        found = router.resolve(model)[0].profile.body["provider"]
        assert {key: value for key, value in found.items() if value is not None} == provider, model
    for model, name in case.formats.items():
        assert router.resolve(model)[0].format == name, model
    for model, mode in case.tools.items():
        assert router.resolve(model)[0].tools == mode, model
    if case.listed is not None:
        assert [entry.id for entry in router.listed_models()] == case.listed
    for entry in router.listed_models():
        first = router.resolve(entry.id)[0]
        assert (first.upstream_name, first.model) == (entry.upstream, entry.model)

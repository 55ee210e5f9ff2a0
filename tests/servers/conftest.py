"""What the tests on a real server share: models made once, judged disagreements, and the score that is printed at the end."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.llama_server import Family, ModelMaker, Refused, make_family

_SCORES: dict[str, Counter[str]] = {}


class Scores:
    """What was seen, counted."""

    def count(self, table: str, outcome: str, remark: str = "") -> None:
        """One more in that table; a remark is printed at once, because a run is long."""
        _SCORES.setdefault(table, Counter())[outcome] += 1
        if remark:
            print(f"\n{table}: {outcome}: {remark}", flush=True)


@pytest.fixture(scope="session")
def scores() -> Scores:
    return Scores()


@pytest.fixture(scope="session")
def judged() -> list[dict[str, Any]]:
    """Disagreements that were looked at, each with its reason."""
    return list(tomllib.loads((Path(__file__).parent / "judged.toml").read_text(encoding="utf-8"))["judged"])


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Family]]:
    """Makes the model of a template, once; skips where the server or the template does not take tools."""
    directory = tmp_path_factory.mktemp("models")
    made: dict[str, Family | str] = {}
    with ModelMaker() as maker:

        def get(name: str) -> Family:
            if name not in made:
                try:
                    made[name] = make_family(name, maker, directory)
                except Refused as error:
                    made[name] = str(error)
            found = made[name]
            if isinstance(found, str):
                pytest.skip(f"no model: {found[:300]}")
            return found

        yield get


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for table, outcomes in _SCORES.items():
        counted = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        terminalreporter.write_line(f"{table}: {outcomes.total()} in all: {counted}")

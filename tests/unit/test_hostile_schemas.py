"""A thousand schemas made to cost as much as they can, through every place that walks a client's schema.

They run in a process of their own, with bounds that are far from what they need: a step that multiplies runs into one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.hostile_schemas import FAMILIES, SIZES

from support import schema_places
from support.examples import IS_DEEP

ROOT = Path(__file__).parent.parent.parent
SHARDS = 6
RUN = range(SHARDS) if IS_DEEP else range(2)
"""A third of them in every run, all with `./dev fuzz`: each family has its small and its large ones in every shard."""


@pytest.mark.fuzz
@pytest.mark.parametrize("shard", RUN)
def test_every_place_is_bounded(shard: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.schema_places", str(shard), str(SHARDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"ended with {done.returncode} in {last}: {done.stderr[-3000:]}"
    assert last == [f"all {len(FAMILIES) * len(SIZES) // SHARDS}"]


def test_there_are_a_thousand() -> None:
    assert len(FAMILIES) * len(SIZES) >= 1000


def test_every_walker_of_a_schema_is_among_the_places() -> None:
    """A new module that looks into schemas has to be named here, and be run by a place."""
    known = {
        "dialects/gemini/openapi.py", "formats/bodies/elements.py", "formats/bodies/gemma_text.py",
        "formats/bodies/typescript.py", "formats/harmony.py", "formats/machine/value_types.py",
        "prompted/validation.py", "schema_cost.py", "schemas.py", "shells/demo_models.py",
    }  # fmt: skip
    walks = {
        str(path.relative_to(ROOT / "src" / "athena"))
        for path in (ROOT / "src" / "athena").rglob("*.py")
        if '"items"' in path.read_text(encoding="utf-8") and '"properties"' in path.read_text(encoding="utf-8")
    }
    assert walks - _FIXED <= known, f"{sorted(walks - _FIXED - known)} look into schemas: add a place to support.schema_places"
    assert schema_places.places()


_FIXED = {
    "dialects/anthropic_messages/toolsets.py", "dialects/anthropic_messages/typed_tools.py",
    "dialects/openai_responses/typed_tools.py", "learning/response_templates.py", "shells/config/schema.py",
    "verify/importers.py",
}  # fmt: skip
"""Write schemas of our own, or read those that the operator names."""

"""The picture of the README shows what `athena demo` plays now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_picture_is_the_command_s_own() -> None:
    spec = importlib.util.spec_from_file_location("generate_picture", DOCS / "generate_picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, drawn in (("demo.svg", module.picture()), ("demo-narrow.svg", module.picture(narrow=True))):
        assert (DOCS / "images" / name).read_text("utf-8") == drawn, "run python docs/generate_picture.py"
        assert "@font-face" not in drawn

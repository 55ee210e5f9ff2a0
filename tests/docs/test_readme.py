"""The pages outside the site lead somewhere; their code runs in `test_code_blocks`."""

from __future__ import annotations

import re

import pytest

from support.code_blocks import ROOT


@pytest.mark.parametrize("page", [page.name for page in sorted(ROOT.glob("*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text("utf-8")):
        assert (ROOT / target).exists(), target

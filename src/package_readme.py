"""Part of the build, not of the package: the README as the package index shows it.

Links of README.md lead to files of the repository, and the index has none of them. Where `Documentation` stands under
`project.urls`, they lead to that site's pages; a link to what has no page there becomes plain text. While no such address
exists, all of them do, and pictures are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {"CONTRIBUTING.md": "contributing/", "SECURITY.md": "threat-model/", "CHANGELOG.md": "changelog/"}
"""Files outside docs that the site shows."""
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:]+)\)")
_PICTURE = re.compile(r"^<picture>.*?</picture>\n\n?", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r'\b(src|srcset)="docs/([^":]+)"')
_COMMENT = re.compile(r"<!--.*?-->\n\n?", re.DOTALL)


def for_the_index(text: str, documentation: str) -> str:
    """The text with links that work anywhere: to pages below `documentation`, or none where that is empty."""
    text = _COMMENT.sub("", text)
    if not documentation:
        return _LINK.sub(r"\1", _PICTURE.sub("", text))
    site = documentation.rstrip("/")

    def replaced(found: re.Match[str]) -> str:
        label, target = found.groups()
        path, _, anchor = target.partition("#")
        if path.startswith("docs/"):
            page = path.removeprefix("docs/")
            page = page.removesuffix(".md").removesuffix("index").rstrip("/") + "/" if page.endswith(".md") else page
        elif path in PAGES:
            page = PAGES[path]
        else:
            return label
        return f"[{label}]({site}/{page.lstrip('/')}{'#' if anchor else ''}{anchor})"

    return _IMAGE.sub(rf'\1="{site}/\2"', _LINK.sub(replaced, text))


class PackageReadme(MetadataHookInterface):
    """Called by hatchling, which finds it by pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        documentation = metadata.get("urls", {}).get("Documentation", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_the_index(text, documentation)}

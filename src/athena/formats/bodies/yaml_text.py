"""Flat YAML as models write it for arguments: one key per line, text blocks, no nesting."""

from __future__ import annotations

import re
from textwrap import dedent

YAML_LINE = re.compile(r"([\w.\-]+):(?: +(.*))?")
"""A key and what stands behind it."""


def yaml_values(text: str) -> dict[str, str] | None:
    """The values of flat YAML as text; None when it is something else."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = YAML_LINE.fullmatch(lines[at].rstrip())
        if line is None:
            if lines[at].strip():
                return None
            at += 1
            continue
        key, value = line.group(1), line.group(2) or ""
        at += 1
        block: list[str] = []
        while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t"):
            block.append(lines[at])
            at += 1
        if value in ("|", "|-", "|+", ">", ">-"):
            joined = dedent("\n".join(block)).strip("\n")
            value = (joined if value[0] == "|" else " ".join(joined.split("\n"))) + ("" if value.endswith("-") else "\n")
        elif any(part.strip() for part in block):
            return None
        elif len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[key] = value
    return found

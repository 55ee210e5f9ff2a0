"""References inside one JSON document: `#`, `#/$defs/name`, `#/properties/a/anyOf/0`."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

_LONGEST = 1024
"""Characters of a reference: a longer one is followed nowhere, because each use of it would be read again."""


def local_target(root: Any, reference: str) -> Any:
    """What a reference points at in its own document; None when it points elsewhere, at nothing, or at null."""
    if reference == "#":
        return root
    if not reference.startswith("#/") or len(reference) > _LONGEST:
        return None
    node = root
    for step in reference[2:].split("/"):
        if isinstance(node, list):
            node = node[int(step)] if step.isdecimal() and len(step) < 8 and int(step) < len(node) else None
        elif isinstance(node, dict):
            if "%" in step:
                step = unquote(step)
            node = node.get(step.replace("~1", "/").replace("~0", "~"))
        else:
            return None
    return node

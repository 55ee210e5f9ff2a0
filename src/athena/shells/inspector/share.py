"""Exchanges as one HTML file: the inspector's own view of them, without a gateway and without a network.

The page's modules become one script by joining them in the order of their imports. That needs names that no two modules share,
which is checked here. Each recording stands in a block of data that no browser runs; `FILE#/x/ID` opens the one with that id.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape

import msgspec

from athena.recording.view import View
from athena.shells.inspector.files import MODULES, read_page_file

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[a-z]+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_NAME = re.compile(r"^(?:async )?(?:function\*?|class|const|let) ([A-Za-z_$][\w$]*)", re.MULTILINE)


def shared_page(views: Iterable[View], title: str = "", labels: Mapping[str, str] | None = None) -> str:
    """The file. Views are written as they are given: what must not be shared has to be redacted before.

    `labels` name exchanges by their ids in the menu of a page that holds several; left out, they are named by id and model.
    """
    held = tuple(views)
    script, style = _script(), read_page_file("style.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    name = title or f"{held[0].row.model if len(held) == 1 else f'{len(held)} exchanges'} - Athena recording"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{_escaped(name)}</title>\n"
        f"<style>{style}</style>\n</head>\n<body>\n"
        + "".join(_block(view, (labels or {}).get(view.row.id, f"{view.row.id} {view.row.model}")) for view in held)
        + f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _block(view: View, label: str) -> str:
    """One exchange as data. Inside of a script element only "<" can end or change what it is."""
    data = msgspec.json.encode(view).decode().replace("<", "\\u003c")
    named = f'data-recording="{escape(view.row.id)}" data-label="{_escaped(label)}"'
    return f'<script type="application/json" {named}>{data}</script>\n'


@cache
def _script() -> str:
    seen: dict[str, str] = {}
    parts = []
    for name in MODULES:
        source = _EXPORT.sub("", _IMPORT.sub("", read_page_file(name)))
        for found in _NAME.findall(source):
            if found in seen:
                raise ValueError(f"{found} is a name of both {seen[found]} and {name}: they cannot be joined to one script")
            seen[found] = name
        if "</script" in source or "<!--" in source:
            raise ValueError(f"{name} holds what would end the script")
        parts.append(source)
    return "\n".join(parts)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _escaped(text: str) -> str:
    """Text for the title and for labels, the only places where data is written as markup."""
    return escape("".join(character for character in text[:200] if character.isprintable()))

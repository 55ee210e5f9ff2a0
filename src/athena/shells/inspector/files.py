"""The page's files, as the gateway serves them. They hold no data, only code; the data asks for a token."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import get_args

import msgspec

from athena.dialects import dialect_names
from athena.formats import format_names
from athena.shells.config.model import Policy, Repair

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The page's Content-Security-Policy. It has no exceptions: text cannot become markup or code even by a mistake of ours."""
INDEX = "index.html"
MODULES = (
    "dom.js",
    "words.js",
    "data.js",
    "json.js",
    "virtual.js",
    "steps.js",
    "lanes.js",
    "exchange.js",
    "health.js",
    "talks.js",
    "list.js",
    "main.js",
)
"""Every module stands after those that it imports."""
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
PATH = "/inspect"
_BELOW = PATH + "/page/"
_SERVED = frozenset((INDEX, "style.css", "icon.svg", *MODULES))
_CHOICES = "choices.json"


class PageFile(msgspec.Struct, frozen=True):
    """One file and what a browser has to be told of it."""

    content_type: str
    body: bytes


@cache
def page_file(name: str) -> PageFile | None:
    """A file of the page; None where there is none of this name."""
    if name == _CHOICES:
        return PageFile(_TYPES["json"], _choices())
    if name not in _SERVED:
        return None
    return PageFile(_TYPES[name.rpartition(".")[2]], read_page_file(name).encode())


def read_page_file(name: str) -> str:
    """The text of one of the page's own files."""
    return (files(__package__) / "page" / name).read_text("utf-8")


def _choices() -> bytes:
    """What a replay can be told to do differently."""
    return msgspec.json.encode(
        {
            "formats": ["off", "auto", *sorted(format_names())],
            "dialects": dialect_names(),
            "repair": get_args(Repair),
            "policy": get_args(Policy),
        }
    )


class PageAnswer(msgspec.Struct, frozen=True):
    """The answer to a browser's request for a file of the page."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def page_answer(path: str, *, may_enter: bool) -> PageAnswer | None:
    """The page at `/inspect` and its files below `/inspect/page`; None for every other path.

    Without a token the page is refused (401), and its body asks for one: this browser's tab may know it already, and only the
    page itself can find that out.
    """
    if path.rstrip("/") == PATH:
        name, status = INDEX, 200 if may_enter else 401
    elif path.startswith(_BELOW):
        name, status = path.removeprefix(_BELOW), 200
    else:
        return None
    file = page_file(name)
    if file is None:
        return None
    headers = [
        (b"content-type", file.content_type.encode()),
        (b"content-security-policy", POLICY.encode()),
        (b"cache-control", b"no-store" if name == INDEX else b"no-cache"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return PageAnswer(status, headers, file.body)

"""Text as it reads once the escapes around it are undone: JSON strings, HTML entities, Markdown, invisible characters.

Escapes say the same thing in other letters. A search for a text inside text of unknown origin has to decode them,
because a reader (a person, or a model) does. Nothing here validates: what is no escape stays as it is.
"""

from __future__ import annotations

import html
import re

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SPAN = re.compile(r"</?span\b[^<>]*+>")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]++"
)
"""Characters that take no room and that a reader does not see."""

_LAYERS = 6
"""More layers than this do not occur by accident, and no model decodes them."""

_WORD_CODES = r"(2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
"""The codes of letters, digits, underscore, dash and dot."""
_HIDING_ESCAPES = (
    ("\\u00", re.compile(r"u00[2-7]"), re.compile(rf"\\u00{_WORD_CODES}")),
    ("\\x", re.compile(r"\\x[2-7]"), re.compile(rf"\\x{_WORD_CODES}")),
)
"""How escapes begin, escapes of visible ASCII (or what looks like one), and escapes of words: each search is faster than the
next, since backslashes are frequent, escapes seldom, and the expressions begin with plain characters."""
_WORD_ESCAPE = re.compile(rf"\\++(?:u00|x){_WORD_CODES}")
_WORD_NUMBERS = (
    rf"(?:[xX]0*+{_WORD_CODES}(?![0-9a-fA-F])|0*+(4[5689]|5[0-7]|6[5-9]|[78][0-9]|9[057-9]|1[01][0-9]|12[0-2])(?![0-9]));?"
)
_HIDING_ENTITY = re.compile(rf"&#{_WORD_NUMBERS}")
_WORD_ENTITY = re.compile(rf"&(?:amp;){{0,8}}#{_WORD_NUMBERS}")


def unescaped(text: str) -> str:
    """One layer of backslashes undone, as in a JSON string; a backslash before any other character is that character."""
    if "\\" not in text:
        return text
    found = _ESCAPE.sub(_character, text)
    if _SURROGATE.search(found) is not None:
        found = found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return found


def _character(found: re.Match[str]) -> str:
    code = found.group(1) or found.group(2)
    if code:
        return chr(int(code, 16))
    return _CONTROLS.get(found.group(3), found.group(3))


def without_entities(text: str) -> str:
    """One layer of HTML entities undone, and the `span` elements of a highlighter left out."""
    if "span" in text:
        text = _SPAN.sub("", text)
    return html.unescape(text) if "&" in text else text


def without_invisible(text: str) -> str:
    return text if text.isascii() else _INVISIBLE.sub("", text)


def hides_words(text: str) -> bool:
    """Are letters or digits written as escapes (`\\u0041`, `&#65;`)? No encoder does that: the answer is mostly no."""
    if "\\" in text:
        for beginning, visible, word in _HIDING_ESCAPES:
            if beginning in text and visible.search(text) is not None and word.search(text) is not None:
                return True
    if "&" not in text:
        return False
    return _HIDING_ENTITY.search(text) is not None or ("amp;#" in text and _WORD_ENTITY.search(text) is not None)


def with_plain_words(text: str) -> str:
    """Letters and digits that are written as escapes, as themselves; other escapes stay."""
    return _WORD_ENTITY.sub(_word_character, _WORD_ESCAPE.sub(_word_character, text))


def _word_character(found: re.Match[str]) -> str:
    code = found.group(1)
    return chr(int(code, 16)) if code else chr(int(found.group(2)))


def plain(text: str) -> str:
    """What is left when every layer of escapes is undone."""
    for _ in range(_LAYERS):
        if "\\" not in text and "&" not in text:
            break
        before, text = text, unescaped(without_entities(text))
        if text == before:
            break
    return without_invisible(text)

"""What a configuration file does that a person should know before trusting it.

Read off the file as it is written, before anything in it is used: unknown keys and bad values are shown like any other. Literal
keys and passwords are not repeated; everything else is, with control characters made visible, so that nothing in the file can
draw over what the terminal shows.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from athena.shells.config.addresses import is_loopback
from athena.shells.config.places import KeyPath, Tree, show_path
from athena.shells.config.secret import MASK

_SHOWN_CHARS = 200
_VARIABLE = re.compile(r"\$(?:\$(?=\{)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^{}]*)?\})")
_ONLY_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}\Z")
_USER = re.compile(r"//[^/@]*@")
_COMMAND = re.compile(r"command|exec|script|shell|hook|plugin", re.IGNORECASE)

_TO = "sends requests, with all they hold, to"
_VARIABLES = "reads the environment variables"
_HEADERS = "adds to every request"
_READS = "reads the files"
_WRITES = "writes the files and directories"
_SHARES = "decides who can use the gateway"
_GUARDS = "takes protection away"
_TEXT = "puts into prompts and requests"
_COMMANDS = "names commands"

_BY_KEY = {
    "base_url": _TO,
    "proxy": _TO,
    "url": _TO,
    "api_key_env": _VARIABLES,
    "api_key_file": _READS,
    "ca_file": _READS,
    "envelope_key_file": _READS,
    "log_file": _WRITES,
    "sse_dir": _WRITES,
    "sse_log_dir": _WRITES,
    "state_dir": _WRITES,
    "gateway_key": _SHARES,
    "prompt_template": _TEXT,
    "template": _READS,
}
_BY_PARENT = {"headers": _HEADERS, "keys": _SHARES, "body": _TEXT, "provider": _TEXT}
_UNGUARDED = {
    "verify": ("false", "no", "off", "0"),
    "forward_client_key": ("true", "yes", "on", "1"),
    "level": ("debug",),
    "log_level": ("debug",),
}
"""Settings that switch a protection off: the check of certificates, the client's own key staying here, logs without bodies."""
_SECRET = ("api_key", "gateway_key", "envelope_key", "encryption_key", "hash")


class Effect(NamedTuple):
    """One line of what `athena config trust` shows about a file."""

    kind: str
    """What the file does, as the beginning of a sentence."""
    setting: str
    """The key and its value."""
    line: int | None


def effects(tree: Tree, lines: dict[KeyPath, int]) -> list[Effect]:
    """Everything in a file that decides where data goes, what is read and written, and who is let in; grouped by kind."""
    found: list[Effect] = []
    for path, value in _leaves(tree, ()):
        line = lines.get(path)
        kind = _kind(path, value)
        if kind:
            found.append(Effect(kind, f"{show_path(path)}: {_shown(path, value)}", line))
        if isinstance(value, str) and kind is not _VARIABLES:
            names = dict.fromkeys(match[1] for match in _VARIABLE.finditer(value) if match[1])
            found += [Effect(_VARIABLES, f"{name} (for {show_path(path)})", line) for name in names]
    kinds = (_TO, _VARIABLES, _HEADERS, _READS, _WRITES, _SHARES, _GUARDS, _TEXT, _COMMANDS)
    return sorted(
        (effect._replace(setting=visible(_cut(effect.setting))) for effect in found), key=lambda one: kinds.index(one.kind)
    )


def count_settings(tree: Tree) -> int:
    """How many single values the file sets."""
    return len(_leaves(tree, ()))


def visible(text: str) -> str:
    """The text on one line, with control characters written out: nothing in it can move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text)} characters)"


def _leaves(value: Any, path: KeyPath) -> list[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, (*path, index))]
    return [] if value is None else [(path, value)]


def _kind(path: KeyPath, value: Any) -> str:
    names = [step for step in path if isinstance(step, str)]
    key, around = names[-1], names[:-1] if isinstance(path[-1], str) else names
    for name in around:
        if name in _BY_PARENT or name.endswith("_provider"):
            return _BY_PARENT.get(name, _TEXT)
    if key in _BY_KEY:
        return _BY_KEY[key]
    if names == ["store"] and "://" in str(value):
        return _TO
    if names[-2:] == ["log", "file"]:
        return _WRITES
    if names[-2:] == ["format", "file"]:
        return _READS
    if key == "host" and not is_loopback(str(value)):
        return _SHARES
    if str(value).lower() in _UNGUARDED.get(key, ()):
        return _GUARDS
    return _COMMANDS if any(_COMMAND.search(name) for name in names) else ""


def _shown(path: KeyPath, value: Any) -> str:
    text = str(value)
    is_secret = path[-1] in _SECRET or "headers" in path or (path[0] == "keys" and len(path) == 2)
    if is_secret and not _ONLY_VARIABLE.match(text):
        return MASK
    return _USER.sub(f"//{MASK}@", text)

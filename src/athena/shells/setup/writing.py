"""The commented `athena.yml` that comes of a person's answers."""

from __future__ import annotations

from enum import Enum

import msgspec

from athena.shells.config import Window
from athena.shells.setup.providers import Provider


class KeyPlace(Enum):
    """Where the provider's key is kept. The configuration names the place; the key itself stands in it only for FILE's path."""

    NONE = "none"
    """The provider asks for no key."""
    ENVIRONMENT = "env"
    """In a variable that the person sets."""
    FILE = "file"
    """In a file of its own, which only the person can read."""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration is made of."""

    provider: Provider
    model: str = ""
    """Empty: names pass through as the client sends them."""
    window: Window = Window()
    key_place: KeyPlace = KeyPlace.NONE
    key_name: str = ""
    """The variable, or the file's path."""
    agent: str = ""


def configuration_text(answers: Answers) -> str:
    """The file. Everything that was chosen stands in it, and what a person will want to change next as comments."""
    provider = answers.provider
    key = {
        KeyPlace.NONE: [],
        KeyPlace.ENVIRONMENT: [f"    api_key_env: {_quoted(answers.key_name)}"],
        KeyPlace.FILE: [f"    api_key_file: {_quoted(answers.key_name)}"],
    }[answers.key_place]
    lines = [
        "# Written by athena init. athena config check checks it, athena config show says what is in force.",
        "# A changed file is taken up while the gateway runs. All settings: athena config init shows a longer example.",
        "",
        "upstreams:",
        f"  {provider.id}:  # {provider.title}" + (f". {provider.note}" if provider.note else ""),
        f"    base_url: {_quoted(provider.base_url)}",
        *key,
        "",
    ]
    target = f"{provider.id}/{answers.model}" if answers.model else f"{provider.id}/{{model}}"
    window = _window(answers.window)
    lines += [
        "models:  # the first match wins; * stands for any text",
        f'  # - {{match: "*haiku*", use: {_quoted(provider.id + "/SMALLER-MODEL")}}}  # agents do small jobs with it',
        f'  - {{match: "*", use: {_quoted(target)}{window}}}',
        "",
        "# record: {mode: disk}  # keep exchanges on disk, for athena record and athena replay",
        "# keys: []              # athena config new-key makes one; needed to listen on other addresses than 127.0.0.1",
        "",
    ]
    return "\n".join(lines)


def _window(window: Window) -> str:
    known = [("context", window.context), ("output", window.output)]
    return "".join(f", {name}: {value}" for name, value in known if value is not None)


def _quoted(text: str) -> str:
    """A YAML string in double quotes, which JSON's strings are."""
    return msgspec.json.encode(text).decode()

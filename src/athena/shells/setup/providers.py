"""The providers that `athena init` offers, from `providers.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

import msgspec

from athena.errors import UsageError
from athena.typed_values import reader


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A place where models are served."""

    id: str
    title: str
    base_url: str
    key_env: str = ""
    """Empty: it asks for no key."""
    model: str = ""
    """What to suggest; empty: the person chooses from the list."""
    port: int = 0
    """Where it listens on one's own machine; 0: it is a service."""
    note: str = ""

    @property
    def is_local(self) -> bool:
        return self.port != 0


_read = reader(Provider)


@cache
def known_providers() -> tuple[Provider, ...]:
    text = resources.files("athena.shells.setup").joinpath("providers.toml").read_text("utf-8")
    return tuple(_read({"id": name, **row}) for name, row in tomllib.loads(text).items())


def own_provider(address: str, key_env: str = "") -> Provider:
    """A server that is not in the table, by its address."""
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", address):
        raise UsageError(f"{address!r} is not the address of a server, such as http://127.0.0.1:8000/v1")
    known = next((row for row in known_providers() if address.rstrip("/") == row.base_url), None)
    return known or Provider(id="mine", title=address, base_url=address.rstrip("/"), key_env=key_env)

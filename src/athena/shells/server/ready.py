"""What is made ready before the first request: every module that one can need, the tables of the models that are listed, and
the code that will run."""

from __future__ import annotations

import contextlib
from importlib import import_module

from athena.dialects import dialect_names, get_dialect
from athena.errors import AthenaError
from athena.exchange import Route
from athena.formats import all_formats
from athena.formats.machine.stage import FormatOptions
from athena.shells.config import Config, Router
from athena.shells.config.ready import ready_targets
from athena.shells.server.rehearsal import rehearse

_READY_AT_ONCE = 8
"""Formats whose tables are built before they are needed; few servers use more at once."""
_LATE = (
    # What the standard library, or one of ours, imports only when it is first used.
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "encodings.punycode",
    "encodings.utf_8",
    "stringprep",
    "unicodedata",
    "ssl",
    "asyncio.sslproto",
    "concurrent.futures.thread",
    "email.utils",
    "jsonschema_rs",
    "zlib",
)


def import_everything() -> None:
    """Import what requests can need. A process that is out of descriptors could not open a module's file any more."""
    for name in dialect_names():
        get_dialect(name)
    all_formats()
    for name in _LATE:
        import_module(name)


def warm_up(config: Config) -> None:
    """Build the tables that the first answers would wait for: those of the first listed models, and that of any other model."""
    formats = {FormatOptions().recognizer(): FormatOptions()}
    router = Router(config)
    for name in ("", *(entry.id for entry in router.listed_models())):
        with contextlib.suppress(AthenaError):
            for target in ready_targets(router, name):
                if target.route.format is not None:
                    formats.setdefault(target.route.format.recognizer(), target.route.format)
    for options in tuple(formats.values())[:_READY_AT_ONCE]:
        options.make_ready()


def make_first_answers_ready(config: Config) -> None:
    """The same for a process that has just begun, whose code has not run yet either."""
    warm_up(config)
    router, routes = Router(config), dict[str, Route]()
    for name in ("", *(entry.id for entry in router.listed_models())):
        with contextlib.suppress(AthenaError):
            for target in ready_targets(router, name):
                routes.setdefault(target.route.dialect, target.route)
    rehearse(routes.values())

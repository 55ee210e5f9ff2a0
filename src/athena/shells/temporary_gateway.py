"""A gateway for the duration of one command, as a process of its own: `python -m athena.shells.temporary_gateway`.

It takes a free loopback port and writes one line of JSON to standard output when clients can connect. It ends when its
standard input does, so that it never outlives whoever started it, however they ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import msgspec

from athena.errors import AthenaError, ConfigError
from athena.shells.config import Sources, load
from athena.shells.server import Plan, Started, serve


class Wish(msgspec.Struct, frozen=True):
    """What to serve; the only argument, as JSON."""

    flags: dict[str, str] = {}
    """As the keys of `config.FLAGS`."""
    config_file: str | None = None
    demo: bool = False
    """Answer with the built-in demo model; without it, an upstream must be configured."""

    def sources(self) -> Sources:
        """Where the configuration comes from. Plain HTTP: the agent may not know the authority behind a certificate."""
        own = {"host": "127.0.0.1", "port": 0, "workers": 1, "tls_cert": "", "tls_key": ""}
        return Sources.here({**self.flags, **own}, self.config_file)


_read_wish = msgspec.json.Decoder(Wish).decode


class Up(msgspec.Struct, frozen=True):
    """The line that a temporary gateway writes once it listens."""

    url: str
    demo: bool


def main() -> int:
    """Serve until standard input ends or a signal comes."""
    wish = _read_wish(sys.argv[1])
    try:
        sources = wish.sources()
        loaded = load(sources)
        if loaded.is_empty and not wish.demo:
            raise ConfigError("no upstream is configured")
        plan = Plan(sources=sources, loaded=loaded, demo=wish.demo, on_started=_announce)
        threading.Thread(target=_end_with_input, daemon=True).start()
        return serve(plan)
    except AthenaError as error:
        print(error, file=sys.stderr)
        return 1


def _announce(started: Started) -> None:
    print(msgspec.json.encode(Up(started.url, started.demo)).decode(), flush=True)


def _end_with_input() -> None:
    # Not through sys.stdin: its lock, held here, would stop the interpreter from ending.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

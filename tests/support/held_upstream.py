"""A Chat upstream whose streams stay open until the test lets them end."""

from __future__ import annotations

from contextlib import suppress

from support.scripted_upstream import ScriptedUpstream
from support.upstream_speech import DONE, chunk
from support.upstream_talk import Talk


class HeldUpstream(ScriptedUpstream):
    """Every stream says "one" at once; `say` adds words to all; `finish` ends them well."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self._open: set[Talk] = set()

    @property
    def open_streams(self) -> int:
        """Streams whose reader is still there."""
        return len(self._open)

    async def answer(self, talk: Talk) -> None:
        await talk.head("200 OK", "connection: close")  # one answer per connection: the reader leaves at its end
        self._open.add(talk)
        self.opened += 1
        try:
            await talk.send(chunk({"role": "assistant", "content": "one"}))
            await talk.hold()
        finally:
            self._open.discard(talk)

    def say(self, word: str) -> None:
        """One more word on every open stream."""
        self.run(self._write(chunk({"content": word})))

    def finish(self) -> None:
        """End every open stream as a model would."""
        self.run(self._write(chunk({}, "stop"), DONE, end=True))

    async def _write(self, *pieces: bytes, end: bool = False) -> None:
        for talk in tuple(self._open):
            with suppress(ConnectionError):  # its reader has just left
                await talk.at_once(*pieces, head=False, end=end)

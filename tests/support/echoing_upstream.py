"""An upstream that remembers every request, headers included, and repeats the key it was sent in its answer."""

from __future__ import annotations

from support.scripted_upstream import ScriptedUpstream, Visit
from support.upstream_speech import chat_stream, chat_whole
from support.upstream_talk import Talk


class EchoingUpstream(ScriptedUpstream):
    """Speaks Chat, whole and streamed; with `piece` the stream is written in pieces of so many bytes, each on its own."""

    base_path = "/v1"

    def __init__(self, piece: int = 0) -> None:
        super().__init__()
        self._piece = piece

    @property
    def asked(self) -> list[Visit]:
        """The requests for an answer; a client may ask for the list of models too."""
        return [visit for visit in self.visits if visit.model]

    async def answer(self, talk: Talk) -> None:
        text = f"your key is {talk.headers.get('authorization', 'unknown')}"
        data = b"".join(chat_stream([{"content": text}], "stop"))
        size = self._piece or len(data)
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        await talk.say(pieces, chat_whole({"content": text}, "stop"))

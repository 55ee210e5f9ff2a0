"""Answers that say whose they are (row 52)."""

from __future__ import annotations

from support.fault_scripts.registry import fault
from support.upstream_speech import chat_stream, chat_whole, chunk
from support.upstream_talk import Talk


@fault("echo")
async def _echo(talk: Talk) -> None:
    """No fault: the answer names the request's own tag, so that another's answer is known for what it is."""
    text = f"echo-of-{talk.model.partition('.')[2]}."
    await talk.say(chat_stream([{"content": text}], "stop"), chat_whole({"content": text}, "stop"))


@fault("echo-slowly")
async def _echo_slowly(talk: Talk) -> None:
    """The same, word by word, so that there is time to leave; its client always does."""
    await talk.head()
    for _ in range(2000):
        await talk.send(chunk({"content": f"echo-of-{talk.model.partition('.')[2]}. "}) if talk.stream else b" ")
        await talk.sleep(0.005)

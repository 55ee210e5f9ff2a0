"""Answers that do not end as they should (rows 13 to 15)."""

from __future__ import annotations

from support.fault_scripts.registry import fault
from support.upstream_talk import Talk


@fault("no-done")
async def _no_done(talk: Talk) -> None:
    frames = [one for one in talk.speech.frames if one not in talk.speech.done]
    await talk.say(frames, talk.speech.whole)


@fault("double-done")
async def _double_done(talk: Talk) -> None:
    await talk.say([*talk.speech.frames, talk.speech.frames[-1]], talk.speech.whole)


@fault("double-finish")
async def _double_finish(talk: Talk) -> None:
    last = -3 if talk.dialect == "openai_chat" else -1
    frames = list(talk.speech.frames)
    await talk.say([*frames[:last], frames[last], *frames[last:]], talk.speech.whole)


@fault("data-after-done")
async def _data_after_done(talk: Talk) -> None:
    await talk.say([*talk.speech.frames, talk.speech.frames[talk.speech.in_text - 1]], talk.speech.whole)


@fault("hang-after-done")
async def _hang_after_done(talk: Talk) -> None:
    if talk.stream:
        await talk.at_once(*talk.speech.frames)
        await talk.hold()
    else:
        await talk.control()


@fault("hang-after-finish")
async def _hang_after_finish(talk: Talk) -> None:
    """The reason came, the end never does."""
    if talk.stream:
        await talk.at_once(*[one for one in talk.speech.frames if one not in talk.speech.done])
        await talk.hold()
    else:
        await talk.control()

"""Connections that break, stall or dawdle (rows 3 to 12), and the healthy answer beside them."""

from __future__ import annotations

from support.fault_scripts.registry import SHORT_IDLE, fault
from support.upstream_speech import DONE, chat_whole, chunk, frame
from support.upstream_talk import Talk


@fault("control")
async def _control(talk: Talk) -> None:
    await talk.control()


@fault("close-before-headers")
async def _close_before_headers(talk: Talk) -> None:
    pass


@fault("reset")
async def _reset(talk: Talk) -> None:
    talk.reset()


@fault("flaky-reset")
async def _flaky_reset(talk: Talk) -> None:
    if talk.number == 0:
        talk.reset()
    else:
        await talk.control()


@fault("stale-keepalive")
async def _stale_keepalive(talk: Talk) -> None:
    """A good answer, and a connection that is closed before it is used again, without a word in the headers."""
    await talk.control()
    talk.keep = False


@fault("stall-headers")
async def _stall_headers(talk: Talk) -> None:
    await talk.hold()


@fault("stall-first-byte")
async def _stall_first_byte(talk: Talk) -> None:
    await talk.head()
    await talk.hold()


@fault("think-long")
async def _think_long(talk: Talk) -> None:
    """Longer than the idle limit of such models, and not longer than their limit for the first byte."""
    await talk.head() if talk.stream else None
    await talk.sleep(3 * SHORT_IDLE)
    if talk.stream:
        await talk.at_once(*talk.speech.frames, head=False, end=True)
    else:
        await talk.whole(talk.speech.whole)


@fault("slowloris-body")
async def _slowloris_body(talk: Talk) -> None:
    data = b"".join(talk.speech.frames) if talk.stream else talk.speech.whole
    await talk.head()
    step = len(data) // 12 + 1
    for start in range(0, len(data), step):
        await talk.send(data[start : start + step])
        await talk.sleep(0.06)
    await talk.end()


@fault("slow-headers")
async def _slow_headers(talk: Talk) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {talk.kind}\r\nconnection: close\r\n\r\n".encode()
    for start in range(0, len(head), 16):
        await talk.raw(head[start : start + 16])
        await talk.sleep(0.03)
    await talk.raw(b"".join(talk.speech.frames) if talk.stream else talk.speech.whole)


@fault("stall-midstream")
async def _stall_midstream(talk: Talk) -> None:
    await talk.begin(talk.speech.in_text)
    await talk.hold()


@fault("stall-midtool")
async def _stall_midtool(talk: Talk) -> None:
    await talk.begin(talk.speech.in_call)
    await talk.hold()


@fault("stall-with-pings", "stall-with-pings-midtool")
async def _stall_with_pings(talk: Talk) -> None:
    await talk.begin(talk.speech.in_call if talk.model.startswith("stall-with-pings-midtool") else talk.speech.in_text)
    ping = frame({"type": "ping"}, "ping") if talk.dialect == "anthropic_messages" else b": ping\n\n"
    talk.wait_for_test()
    if not talk.stream:
        await talk.hold()
    while talk.stream:
        # Until the connection is gone: then this raises.
        await talk.send(ping)
        await talk.sleep(0.05)


@fault("pings-then-answer")
async def _pings_then_answer(talk: Talk) -> None:
    """Comments while the model thinks, longer than the idle limit of such models, and then the answer."""
    await talk.head()
    for _ in range(20 if talk.stream else 0):
        await talk.send(b": PROCESSING\n\n")
        await talk.sleep(3 * SHORT_IDLE / 20)
    await talk.at_once(*(talk.speech.frames if talk.stream else [talk.speech.whole]), head=False, end=True)


@fault("reset-midstream")
async def _reset_midstream(talk: Talk) -> None:
    await talk.begin(talk.speech.in_text)
    await talk.sleep(0.02)
    talk.reset()


@fault("reset-midtool")
async def _reset_midtool(talk: Talk) -> None:
    await talk.begin(talk.speech.in_call)
    await talk.sleep(0.02)
    talk.reset()


@fault("truncated")
async def _truncated(talk: Talk) -> None:
    """FIN in the middle of a chunked body and of a record."""
    await talk.begin(talk.speech.in_call)
    if talk.stream:
        following = talk.speech.frames[talk.speech.in_call]
        await talk.send(following[: len(following) // 2])


@fault("truncated-length")
async def _truncated_length(talk: Talk) -> None:
    data = b"".join(talk.speech.frames[: talk.speech.in_call]) if talk.stream else talk.speech.whole[:-20]
    await talk.head("200 OK", f"content-length: {len(data) + 500}", chunked=False)
    await talk.raw(data)


@fault("truncated-clean")
async def _truncated_clean(talk: Talk) -> None:
    await talk.begin(talk.speech.in_call)
    await talk.end()


@fault("truncated-clean-text")
async def _truncated_clean_text(talk: Talk) -> None:
    await talk.begin(talk.speech.in_text)
    await talk.end()


@fault("truncated-eof")
async def _truncated_eof(talk: Talk) -> None:
    """A body without any length, ended by the connection."""
    await talk.head(chunked=False)
    await talk.raw(b"".join(talk.speech.frames[: talk.speech.in_call]) if talk.stream else talk.speech.whole[:-30])


@fault("no-finish-reason")
async def _no_finish_reason(talk: Talk) -> None:
    """Everything was said except why it ended: the stream just stops there, its body ended well."""
    last = {"openai_chat": 3, "anthropic_messages": 2, "openai_responses": 1, "gemini": 1}[talk.dialect]
    if talk.stream:
        await talk.head()
        await talk.send(*talk.speech.frames[:-last])
        await talk.end()
    else:
        await talk.control()


@fault("finish-error")
async def _finish_error(talk: Talk) -> None:
    await talk.say([*talk.speech.frames[:2], chunk({}, "error"), DONE], chat_whole({"content": "half"}, "error"))

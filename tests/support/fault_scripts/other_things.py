"""Nothing, or another thing than asked for (rows 16 to 19)."""

from __future__ import annotations

from support.fault_scripts.registry import fault
from support.upstream_speech import DONE, encode, error_frame, error_value, frame
from support.upstream_talk import Talk


@fault("empty-200")
async def _empty_200(talk: Talk) -> None:
    await talk.whole(b"", kind=talk.kind)


@fault("204")
async def _no_content(talk: Talk) -> None:
    await talk.raw(b"HTTP/1.1 204 No Content\r\n\r\n")
    talk.keep = True


@fault("empty-sse")
async def _empty_sse(talk: Talk) -> None:
    await talk.head()
    await talk.end()


@fault("only-done")
async def _only_done(talk: Talk) -> None:
    await talk.head(kind="text/event-stream")
    await talk.send(DONE)
    await talk.end()


@fault("error-in-200")
async def _error_in_200(talk: Talk) -> None:
    """As the first event of a stream, or as the body."""
    value = error_value(talk.dialect, 429, "slow down please")
    if talk.dialect == "openai_chat":
        value["error"]["code"] = 429
    if talk.dialect == "openai_responses":
        value = {"error": {"code": "rate_limit_exceeded", "message": "slow down please"}}
    await talk.say([frame(value, "error" if talk.dialect == "anthropic_messages" else "")], encode(value))


@fault("error-json-200")
async def _error_json_200(talk: Talk) -> None:
    value = error_value(talk.dialect, 429, "slow down please")
    if talk.dialect in ("openai_chat", "openai_responses"):
        value["error"]["code"] = 429
    await talk.whole(encode(value))


@fault("error-midstream", "error-event")
async def _error_midstream(talk: Talk) -> None:
    if not talk.stream:
        await talk.whole(encode(error_value(talk.dialect, 500, "it broke")), "500 X")
        return
    broken = error_frame(talk.dialect, 500, "it broke")
    if talk.model.startswith("error-event") and talk.dialect == "openai_chat":
        broken = frame({"message": "it broke"}, "error")
    await talk.say([*talk.speech.frames[: talk.speech.in_call], broken], b"")


PAGE = b"<!DOCTYPE html><html><head><title>SECRET-PAGE</title></head><body>SECRET-PAGE 1.2.3</body></html>"


@fault("200-html")
async def _html_200(talk: Talk) -> None:
    await talk.whole(PAGE, kind="text/html")


@fault("500-html")
async def _html_500(talk: Talk) -> None:
    await talk.whole(PAGE, "500 Internal Server Error", kind="text/html")


@fault("json-for-stream")
async def _json_for_stream(talk: Talk) -> None:
    await talk.whole(talk.speech.whole)


@fault("sse-for-json")
async def _sse_for_json(talk: Talk) -> None:
    await talk.head(kind="text/event-stream")
    await talk.send(*talk.speech.frames)
    await talk.end()


@fault("wrong-content-type")
async def _wrong_content_type(talk: Talk) -> None:
    await talk.head(kind="application/json" if talk.stream else "text/event-stream")
    await talk.send(*(talk.speech.frames if talk.stream else [talk.speech.whole]))
    await talk.end()


@fault("no-content-type")
async def _no_content_type(talk: Talk) -> None:
    await talk.head(kind="")
    await talk.send(*(talk.speech.frames if talk.stream else [talk.speech.whole]))
    await talk.end()

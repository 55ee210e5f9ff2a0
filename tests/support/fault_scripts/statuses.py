"""Refusals by status (rows 32 to 38)."""

from __future__ import annotations

import time
from email.utils import formatdate

from support.fault_scripts.registry import fault
from support.upstream_speech import encode, error_value, frame
from support.upstream_talk import Talk

LATER = 90


def _refusing(name: str, status: str, *headers: str, body: bytes | None = None) -> None:
    @fault(name)
    async def script(talk: Talk) -> None:
        code = int(status[:3])
        text = encode(error_value(talk.dialect, code, f"no: {name}")) if body is None else body
        shown = [header.replace("{date}", formatdate(time.time() + LATER, usegmt=True)) for header in headers]
        await talk.whole(text, status, *shown)


_refusing("429", "429 Too Many", "retry-after: 7")
_refusing("429-ms", "429 Too Many", "retry-after-ms: 2500")
_refusing("429-date", "429 Too Many", "retry-after: {date}")
_refusing("429-huge", "429 Too Many", "retry-after: 3600")
_refusing("429-garbage", "429 Too Many", "retry-after: soon")
_refusing("429-nan", "429 Too Many", "retry-after: nan")
_refusing("429-inf", "429 Too Many", "retry-after: 1e999")
_refusing("429-negative", "429 Too Many", "retry-after: -5")
_refusing("429-final", "429 Too Many", "retry-after-ms: 1", "x-should-retry: false")
_refusing("529", "529 Overloaded")
_refusing("503", "503 Unavailable")
_refusing("500-json", "500 Internal")
_refusing("502-empty", "502 Bad Gateway", body=b"")
_refusing("504", "504 Timeout")
_refusing("408", "408 Timeout")
_refusing("400", "400 Bad")
_refusing("402", "402 Pay")
_refusing("403", "403 Forbidden")
_refusing("404", "404 Not Found")
_refusing("413", "413 Large")
_refusing("422", "422 What")
_refusing("500-cookie", "500 Internal", "set-cookie: session=SECRET-COOKIE", "connection: close")


@fault("401-echo-key")
async def _echo_key(talk: Talk) -> None:
    """The upstream repeats the key it was sent, everywhere it can."""
    key = talk.headers.get("authorization", "").removeprefix("Bearer ") or talk.headers.get(
        "x-api-key", talk.headers.get("x-goog-api-key", "")
    )
    value = error_value(talk.dialect, 401, f"Incorrect API key provided: {key}. Try another than {key}!")
    value["error"]["param"] = key
    if talk.dialect == "openai_chat":
        value["error"]["code"] = f"bad_{key}"
    await talk.whole(encode(value), "401 Unauthorized", f"x-echo: {key}", f"www-authenticate: Bearer realm={key}")


@fault("200-echo-key")
async def _echo_key_later(talk: Talk) -> None:
    """The same as an error in a 200, after the answer began."""
    key = talk.headers.get("authorization", "").removeprefix("Bearer ")
    value = {"error": {"message": f"key {key} is out of credit", "code": 402, "type": key}}
    await talk.say([*talk.speech.frames[:3], frame(value)], encode(value))


@fault("redirect")
async def _redirect(talk: Talk) -> None:
    await talk.whole(b"", "307 Temporary Redirect", "location: /canary")


@fault("flaky-midstream")
async def _flaky_midstream(talk: Talk) -> None:
    """Breaks after the first bytes; a second attempt would succeed and must not be made."""
    if talk.number == 0 and talk.stream:
        await talk.begin(talk.speech.in_text)
        await talk.sleep(0.02)
        talk.reset()
    else:
        await talk.control()


def _flaky(name: str, failures: int, status: str, *headers: str) -> None:
    @fault(name)
    async def script(talk: Talk) -> None:
        if talk.number < failures:
            await talk.whole(encode(error_value(talk.dialect, int(status[:3]), "not now")), status, *headers)
        else:
            await talk.control()


_flaky("flaky-500", 1, "500 Internal")
_flaky("flaky-500-twice", 2, "500 Internal")
_flaky("always-500", 1000, "500 Internal")
_flaky("flaky-429", 1, "429 Too Many", "retry-after-ms: 20")

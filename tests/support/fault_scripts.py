"""The faults, by the names docs/reference/faults.md gives them. Each answers one request; what it leaves out is the fault."""

from __future__ import annotations

import gzip
import json
import random
import time
import zlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

from support.upstream_speech import (
    ARGUMENTS,
    DONE,
    NAME,
    call_piece,
    calls,
    chat_stream,
    chat_whole,
    chunk,
    encode,
    error_frame,
    error_value,
    frame,
)
from support.upstream_talk import Talk

SHORT_IDLE = 0.3
"""The shortest idle limit of the tests, in seconds."""

Fault = Callable[[Talk], Awaitable[None]]
FAULTS: dict[str, Fault] = {}


def fault(*names: str) -> Callable[[Fault], Fault]:
    """Register a script under its names."""

    def register(script: Fault) -> Fault:
        for name in names:
            assert name not in FAULTS, name
            FAULTS[name] = script
        return script

    return register


@fault("control")
async def _control(talk: Talk) -> None:
    await talk.control()


# -- connections (rows 3 to 12) --------------------------------------------------------------------------------------------


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


async def _begin(talk: Talk, frames: int) -> None:
    """The first frames of a stream; of a whole answer its first half."""
    await talk.at_once(*(talk.speech.frames[:frames] if talk.stream else [talk.speech.whole[: len(talk.speech.whole) // 2]]))


@fault("stall-midstream")
async def _stall_midstream(talk: Talk) -> None:
    await _begin(talk, talk.speech.in_text)
    await talk.hold()


@fault("stall-midtool")
async def _stall_midtool(talk: Talk) -> None:
    await _begin(talk, talk.speech.in_call)
    await talk.hold()


@fault("stall-with-pings", "stall-with-pings-midtool")
async def _stall_with_pings(talk: Talk) -> None:
    await _begin(talk, talk.speech.in_call if talk.model.startswith("stall-with-pings-midtool") else talk.speech.in_text)
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
    await _begin(talk, talk.speech.in_text)
    await talk.sleep(0.02)
    talk.reset()


@fault("reset-midtool")
async def _reset_midtool(talk: Talk) -> None:
    await _begin(talk, talk.speech.in_call)
    await talk.sleep(0.02)
    talk.reset()


@fault("truncated")
async def _truncated(talk: Talk) -> None:
    """FIN in the middle of a chunked body and of a record."""
    await _begin(talk, talk.speech.in_call)
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
    await _begin(talk, talk.speech.in_call)
    await talk.end()


@fault("truncated-clean-text")
async def _truncated_clean_text(talk: Talk) -> None:
    await _begin(talk, talk.speech.in_text)
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


# -- ends (rows 13 to 15) --------------------------------------------------------------------------------------------------


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


# -- nothing, or another thing than asked for (rows 16 to 19) ----------------------------------------------------------------


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


# -- event streams in other shapes (rows 20 to 23) ---------------------------------------------------------------------------


def _shaped(name: str, shape: Callable[[bytes], bytes], split: Callable[[bytes], list[bytes]] | None = None) -> None:
    """A fault that rewrites the bytes of a healthy stream."""

    @fault(name)
    async def script(talk: Talk) -> None:
        data = shape(b"".join(talk.speech.frames).replace(b"\r\n", b"\n"))
        pieces = split(data) if split else [data[start : start + 97] for start in range(0, len(data), 97)]
        await talk.say(pieces, talk.speech.whole)


def _pretty(data: bytes) -> bytes:
    """Every record spread over several data lines."""
    blocks = []
    for block in data.strip().split(b"\n\n"):
        lines = block.split(b"\n")
        payload = lines[-1].removeprefix(b"data: ")
        if payload != b"[DONE]":
            spread = json.dumps(json.loads(payload), indent=1, ensure_ascii=False).encode()
            lines[-1:] = [b"data: " + line for line in spread.split(b"\n")]
        blocks.append(b"\n".join(lines))
    return b"\n\n".join(blocks) + b"\n\n"


def _single_bytes(data: bytes) -> list[bytes]:
    return [data[start : start + 1] for start in range(len(data))]


def _around_carriage_returns(data: bytes) -> list[bytes]:
    return [*[piece + b"\r" for piece in data.split(b"\r")][:-1], data.split(b"\r")[-1]]


def _random_pieces(data: bytes) -> list[bytes]:
    source = random.Random(7)
    pieces, start = [], 0
    while start < len(data):
        size = source.choice((1, 2, 3, 5, 40, 200))
        pieces.append(data[start : start + size])
        start += size
    return pieces


_shaped("crlf", lambda data: data.replace(b"\n", b"\r\n"))
_shaped("cr-only", lambda data: data.replace(b"\n", b"\r"))
_shaped("split-crlf", lambda data: data.replace(b"\n", b"\r\n"), _around_carriage_returns)
_shaped("bom", lambda data: b"\xef\xbb\xbf" + data)
_shaped("comments", lambda data: b": hello\n\n" + data.replace(b"\n\n", b"\n\n:\n: keep-alive\n\n"))
_shaped("no-space", lambda data: data.replace(b"data: ", b"data:").replace(b"event: ", b"event:"))
_shaped("extra-fields", lambda data: b"retry: 100\n\n" + data.replace(b"data: ", b"id: 7\nfoo: bar\ndata: "))
_shaped("multiline-data", _pretty)
_shaped("split-utf8", lambda data: data, _single_bytes)
_shaped("split-random", lambda data: data, _random_pieces)
_shaped("coalesced", lambda data: data, lambda data: [data])
_shaped("no-last-blank", lambda data: data.rstrip(b"\n"))


@fault("invalid-utf8")
async def _invalid_utf8(talk: Talk) -> None:
    wrong = "Grüße ".encode().replace(b"\xc3\xbc", b"\xff\xfe")
    await talk.say(
        [one.replace("Grüße ".encode(), wrong) for one in talk.speech.frames],
        talk.speech.whole.replace("Grüße ".encode(), wrong),
    )


@fault("utf16")
async def _utf16(talk: Talk) -> None:
    data = b"".join(talk.speech.frames) if talk.stream else talk.speech.whole
    await talk.head()
    await talk.send(data.decode().encode("utf-16"))
    await talk.end()


@fault("nul")
async def _nul(talk: Talk) -> None:
    await talk.say(
        [one.replace(b"hello", b"hel\x00lo") for one in talk.speech.frames], talk.speech.whole.replace(b"hello", b"hel\x00lo")
    )


@fault("lone-surrogate")
async def _lone_surrogate(talk: Talk) -> None:
    await talk.say(
        [one.replace(b"hello", b"\\ud83d") for one in talk.speech.frames], talk.speech.whole.replace(b"hello", b"\\ud83d")
    )


@fault("split-surrogate")
async def _split_surrogate(talk: Talk) -> None:
    """One emoji cut between two records."""
    frames = list(talk.speech.frames)
    frames[1:3] = [
        chunk({"content": "X"}).replace(b'"X"', b'"a \\ud83d"'),
        chunk({"content": "X"}).replace(b'"X"', b'"\\ude00 b"'),
    ]
    await talk.say(frames, chat_whole({"content": "a 😀 b", "tool_calls": [_entry("call_1", NAME, "".join(ARGUMENTS))]}))


# -- size and encoding (rows 24, 25) ---------------------------------------------------------------------------------------


@fault("giant-line")
async def _giant_line(talk: Talk) -> None:
    text = "x" * (1024 * 1024)
    await talk.say(chat_stream([{"content": text}], "stop"), chat_whole({"content": text}, "stop"))


@fault("endless-line")
async def _endless_line(talk: Talk) -> None:
    await talk.head()
    await talk.send(
        b'data: {"choices":[{"index":0,"delta":{"content":"' if talk.stream else b'{"choices":[{"message":{"content":"'
    )
    for _ in range(1000):
        await talk.send(b"x" * 65536)


@fault("endless-stream")
async def _endless_stream(talk: Talk) -> None:
    """Ends only with the client, or with the total limit."""
    await talk.at_once(*(talk.speech.frames[: talk.speech.in_text] if talk.stream else [b" "]))
    talk.wait_for_test()
    while True:
        await talk.send(talk.speech.frames[talk.speech.in_text - 1] if talk.stream else b" ")
        await talk.sleep(0.01)


def _squeezed(name: str, squeeze: Callable[[bytes], bytes], label: str) -> None:
    @fault(name)
    async def script(talk: Talk) -> None:
        data = squeeze(b"".join(talk.speech.frames) if talk.stream else talk.speech.whole)
        await talk.head("200 OK", f"content-encoding: {label}")
        await talk.send(*[data[start : start + 50] for start in range(0, len(data), 50)])
        await talk.end()


_squeezed("gzip-sse", gzip.compress, "gzip")
_squeezed("deflate-sse", zlib.compress, "deflate")
_squeezed("gzip-lie", lambda data: data, "gzip")
_squeezed("gzip-truncated", lambda data: gzip.compress(data)[:200], "gzip")
_squeezed("br-label", lambda data: data, "br")


@fault("gzip-bomb")
async def _gzip_bomb(talk: Talk) -> None:
    """64 MiB of nothing in 64 KiB."""
    squeezer = zlib.compressobj(9, wbits=31)
    nothing = squeezer.compress(b"data: {" if talk.stream else b"{") + squeezer.compress(b" " * (1024 * 1024))
    block = squeezer.compress(b" " * (1024 * 1024)) + squeezer.flush(zlib.Z_FULL_FLUSH)
    await talk.head("200 OK", "content-encoding: gzip")
    # In one write: how much has come is not left to how busy this machine is.
    await talk.send(nothing + 64 * block)
    await talk.end()


# -- HTTP itself (rows 26 to 28) -------------------------------------------------------------------------------------------


@fault("bad-chunk-size")
async def _bad_chunk_size(talk: Talk) -> None:
    await talk.head()
    await talk.send(talk.speech.frames[0] if talk.stream else b"{")
    await talk.raw(b"zz\r\n{}\r\n0\r\n\r\n")


@fault("cl-and-te")
async def _cl_and_te(talk: Talk) -> None:
    await talk.head("200 OK", "content-length: 5")
    await talk.send(b"".join(talk.speech.frames) if talk.stream else talk.speech.whole)
    await talk.end()


@fault("http10")
async def _http10(talk: Talk) -> None:
    await talk.raw(f"HTTP/1.0 200 OK\r\ncontent-type: {talk.kind}\r\n\r\n".encode())
    await talk.raw(b"".join(talk.speech.frames) if talk.stream else talk.speech.whole)


@fault("chunk-ext")
async def _chunk_ext(talk: Talk) -> None:
    data = b"".join(talk.speech.frames) if talk.stream else talk.speech.whole
    await talk.head("200 OK", "trailer: x-sum")
    await talk.raw(b"%x;name=value\r\n%b\r\n0\r\nx-sum: 1\r\n\r\n" % (len(data), data))
    talk.keep = True


@fault("early-hints")
async def _early_hints(talk: Talk) -> None:
    await talk.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n")
    await talk.control()


STRAY = "STRAY-ANSWER-OF-SOMEBODY-ELSE"


@fault("response-smuggle")
async def _response_smuggle(talk: Talk) -> None:
    """A second response right behind the first one, for whoever comes next on this connection."""
    stray = chat_whole({"content": STRAY}, "stop")
    data = b"".join(talk.speech.frames) if talk.stream else talk.speech.whole
    first = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (talk.kind.encode(), len(data), data)
    second = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(stray), stray)
    await talk.raw(first + second)
    talk.keep = True


@fault("huge-headers")
async def _huge_headers(talk: Talk) -> None:
    await talk.control("x-big: " + "x" * 100_000)


@fault("odd-headers")
async def _odd_headers(talk: Talk) -> None:
    await talk.control(
        "set-cookie: session=SECRET-COOKIE", "access-control-allow-origin: https://evil.example", "keep-alive: timeout=5",
        "proxy-authenticate: Basic", "upgrade: h2c", "te: trailers", "x-odd: \xff\xfe", "server: SECRET-SERVER",
        "alt-svc: h3=':443'", "strict-transport-security: max-age=1", "location: http://evil.example/",
    )  # fmt: skip


# -- JSON that is not what it should be (rows 29 to 31) ------------------------------------------------------------------------


def _with_record(name: str, record: bytes, whole: bytes) -> None:
    """A healthy Chat stream with one more record after its first text; whole answers have their own form of the fault."""

    @fault(name)
    async def script(talk: Talk) -> None:
        frames = list(talk.speech.frames)
        frames.insert(talk.speech.in_text, record)
        await talk.say(frames, whole)


_HEAD = b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":'


def _message(inside: bytes) -> bytes:
    return _HEAD + b'{"role":"assistant","content":"hi"%b},"finish_reason":"stop"}]}' % inside


def _delta(inside: bytes) -> bytes:
    return b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"LOST"%b},"finish_reason":null}]}\n\n' % inside


_with_record("bad-json", b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"LOST\n\n', _message(b"")[:-9])
_with_record("junk-line", b"data: oops\n\n", _message(b"") + b" oops")
_with_record(
    "deep-json", _delta(b',"x":' + b"[" * 100_000 + b"]" * 100_000), _message(b',"x":' + b"[" * 100_000 + b"]" * 100_000)
)
_with_record("huge-int", _delta(b',"x":1' + b"0" * 5000), _message(b',"x":1' + b"0" * 5000))
_with_record("nan", _delta(b',"x":NaN'), _message(b',"x":NaN'))
_with_record("dup-keys", _delta(b',"content":"and"'), _message(b',"content":"and"'))
_with_record(
    "wrong-types",
    b'data: {"id":5,"object":[],"created":"now","model":{},"choices":[{"index":"0","delta":{"content":7,"refusal":1},'
    b'"finish_reason":0}],"usage":"none"}\n\n',
    encode({"id": 5, "choices": {"0": "x"}}),
)
_with_record(
    "null-fields",
    b'data: {"id":null,"choices":[{"index":0,"delta":{"content":null,"tool_calls":null,"function_call":null,"refusal":null,'
    b'"role":null},"finish_reason":null,"logprobs":null}],"usage":null,"error":null}\n\n',
    _HEAD + b'{"role":"assistant","content":"hi","tool_calls":null,"refusal":null,"audio":null},"finish_reason":"stop",'
    b'"logprobs":null}],"usage":null,"error":null}',
)
_with_record("missing-choices", b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk"}\n\n', b'{"id":"chatcmpl-1"}')
_with_record(
    "bad-usage",
    chunk(None, usage={"prompt_tokens": "many", "completion_tokens": -5, "total_tokens": None}),
    chat_whole({"content": "hi"}, "stop", usage={"prompt_tokens": -1, "completion_tokens": "x"}),
)
_with_record(
    "proto-keys",
    b'data: {"id":"chatcmpl-1","__proto__":{"x":1},"constructor":{"prototype":{}},"choices":[{"index":0,"delta":'
    b'{"__proto__":{"admin":true},"content":""},"finish_reason":null}]}\n\n',
    _message(b',"__proto__":{"admin":true},"constructor":{"prototype":{}}'),
)


@fault("proto-arguments")
async def _proto_arguments(talk: Talk) -> None:
    arguments = '{"__proto__": {"p": 1}, "constructor": 2}'
    await talk.say(
        chat_stream([calls(call_piece(0, arguments, "call_1", "a"))]),
        chat_whole({"content": None, "tool_calls": [_entry("call_1", "a", arguments)]}),
    )


@fault("second-choice")
async def _second_choice(talk: Talk) -> None:
    """An unsolicited choice between the pieces of the one that was."""
    other = frame({"id": "chatcmpl-1", "choices": [{"index": 1, "delta": {"content": "OTHER"}, "finish_reason": None}]})
    ended = frame({"id": "chatcmpl-1", "choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]})
    frames = list(talk.speech.frames)
    frames[2:2] = [other]
    frames[-2:-2] = [ended]
    whole = json.loads(talk.speech.whole)
    whole["choices"].append({"index": 1, "message": {"role": "assistant", "content": "OTHER"}, "finish_reason": "stop"})
    await talk.say(frames, encode(whole))


# -- statuses (rows 32 to 38) ----------------------------------------------------------------------------------------------

LATER = 90


def _refusing(name: str, status: str, *headers: str, body: bytes | None = None) -> None:
    @fault(name)
    async def script(talk: Talk) -> None:
        code = int(status[:3])
        text = encode(error_value(talk.dialect, code, f"no: {name}")) if body is None else body
        shown = [header.replace("{date}", formatdate(talk_time() + LATER, usegmt=True)) for header in headers]
        await talk.whole(text, status, *shown)


def talk_time() -> float:
    return time.time()


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
        await _begin(talk, talk.speech.in_text)
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


# -- calls in all their forms (rows 39 to 44) --------------------------------------------------------------------------------


def _entry(call_id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    entry = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return entry if call_id is not None else {"type": "function", "function": entry["function"]}


def _tool(
    name: str, deltas: list[dict[str, Any]], whole: list[dict[str, Any]] | None = None, finish: str = "tool_calls"
) -> None:
    """A Chat answer made of these deltas; whole, of these entries, else of what the deltas mean."""

    @fault(name)
    async def script(talk: Talk) -> None:
        entries = whole if whole is not None else [_entry("call_a", "a", '{"p": 1}'), _entry("call_b", "b", '{"p": 2}')]
        await talk.say(chat_stream(deltas, finish), chat_whole({"content": None, "tool_calls": entries}, finish))


_A, _B = '{"p": 1}', '{"p": 2}'
_tool(
    "tool-interleaved",
    [
        calls(call_piece(0, "", "call_a", "a"), call_piece(1, "", "call_b", "b")),
        calls(call_piece(0, _A[:3])), calls(call_piece(1, _B[:4])), calls(call_piece(0, _A[3:])), calls(call_piece(1, _B[4:])),
    ],
)  # fmt: skip
_tool(
    "tool-two-in-one",
    [calls(call_piece(0, _A, "call_a", "a"), call_piece(1, _B, "call_b", "b"))],
)
_tool(
    "tool-index-zero",
    [
        calls(call_piece(0, "", "call_a", "a")), calls(call_piece(0, _A)), calls(call_piece(0, "", "call_b", "b")),
        calls(call_piece(0, _B)),
    ],
)  # fmt: skip
_tool(
    "tool-no-index",
    [
        calls(call_piece(None, "", "call_a", "a")), calls(call_piece(None, _A[:3])), calls(call_piece(None, _A[3:])),
        calls(call_piece(None, "", "call_b", "b")), calls(call_piece(None, _B)),
    ],
)  # fmt: skip
_tool("tool-index-gap", [calls(call_piece(3, _A, "call_a", "a")), calls(call_piece(17, _B, "call_b", "b"))])
_tool(
    "tool-no-id",
    [calls(call_piece(0, _A, None, "a")), calls(call_piece(1, _B, None, "b"))],
    [_entry(None, "a", _A), _entry(None, "b", _B)],
)
_tool(
    "tool-dup-id",
    [calls(call_piece(0, _A, "call_x", "a")), calls(call_piece(1, _B, "call_x", "b"))],
    [_entry("call_x", "a", _A), _entry("call_x", "b", _B)],
)
_tool(
    "tool-late-name",
    [calls(call_piece(0, None, "call_a")), calls(call_piece(0, _A[:4], None, "a")), calls(call_piece(0, _A[4:])),
     calls(call_piece(1, _B, "call_b", "b"))],
)  # fmt: skip
_tool(
    "tool-name-repeated",
    [calls(call_piece(0, _A[:4], "call_a", "a")), calls(call_piece(0, _A[4:], "call_a", "a")),
     calls(call_piece(1, _B[:4], "call_b", "b")), calls(call_piece(1, _B[4:], "call_b", "b"))],
)  # fmt: skip
_tool("tool-whole", [calls(call_piece(0, _A, "call_a", "a"), call_piece(1, _B, "call_b", "b"))])
_tool(
    "tool-args-object",
    [calls(call_piece(0, {"p": 1}, "call_a", "a")), calls(call_piece(1, {"p": 2}, "call_b", "b"))],
    [_entry("call_a", "a", {"p": 1}), _entry("call_b", "b", {"p": 2})],
)
_tool(
    "tool-name-split",
    [calls(call_piece(0, None, "call_a", "get_")), calls(call_piece(0, None, None, "weather")),
     calls(call_piece(0, "".join(ARGUMENTS)))],
    [_entry("call_a", NAME, "".join(ARGUMENTS))],
)  # fmt: skip
_tool("tool-bad-args", [calls(call_piece(0, '{"p": oops}', "call_a", "a"))], [_entry("call_a", "a", '{"p": oops}')])
_tool(
    "tool-truncated-args",
    [calls(call_piece(0, '{"p": 1, "city": "Par', "call_a", "a"))],
    [_entry("call_a", "a", '{"p": 1, "city": "Par')],
    "length",
)
_tool(
    "tool-cut-silently",
    [calls(call_piece(0, '{"p": 1, "city": "Par', "call_a", "a"))],
    [_entry("call_a", "a", '{"p": 1, "city": "Par')],
)
_tool("tool-empty-args", [calls(call_piece(0, "", "call_a", "a"))], [_entry("call_a", "a", "")])
_tool("tool-double-encoded", [calls(call_piece(0, json.dumps(_A), "call_a", "a"))], [_entry("call_a", "a", json.dumps(_A))])
_DEEP = '{"p":' + "[" * 100 + "]" * 100 + "}"
_tool("tool-deep-args", [calls(call_piece(0, _DEEP, "call_a", "a"))], [_entry("call_a", "a", _DEEP)])
_DEEPER = '{"p":' + "[" * 50_000 + "]" * 50_000 + "}"
_tool("tool-deeper-args", [calls(call_piece(0, _DEEPER, "call_a", "a"))], [_entry("call_a", "a", _DEEPER)])
_tool("tool-nan-args", [calls(call_piece(0, '{"p": NaN}', "call_a", "a"))], [_entry("call_a", "a", '{"p": NaN}')])
_tool(
    "tool-dup-arg-keys",
    [calls(call_piece(0, '{"p": 7, "p": 1}', "call_a", "a"))],
    [_entry("call_a", "a", '{"p": 7, "p": 1}')],
)
_tool("tool-finish-stop", [calls(call_piece(0, _A, "call_a", "a")), calls(call_piece(1, _B, "call_b", "b"))], finish="stop")
_tool("tool-unknown", [calls(call_piece(0, _A, "call_a", "launch"))], [_entry("call_a", "launch", _A)])
EVIL = 'x"}\r\n\r\ndata: {"evil": 1}\n\nevent: message_stop\n<script>'
_tool("tool-evil-name", [calls(call_piece(0, _A, 'id"\r\n\n', EVIL))], [_entry('id"\r\n\n', EVIL, _A)])
MANY = 300
_tool(
    "tool-many",
    [calls(call_piece(number, f'{{"p": {number}}}', f"call_{number}", "a")) for number in range(MANY)],
    [_entry(f"call_{number}", "a", f'{{"p": {number}}}') for number in range(MANY)],
)
HUGE = "é" * (1024 * 1024)
_HUGE_ARGUMENTS = json.dumps({"city": HUGE}, ensure_ascii=False)
_tool(
    "tool-huge-args",
    [calls(call_piece(0, "", "call_a", "a"))]
    + [calls(call_piece(0, _HUGE_ARGUMENTS[start : start + 4096])) for start in range(0, len(_HUGE_ARGUMENTS), 4096)],
    [_entry("call_a", "a", _HUGE_ARGUMENTS)],
)


# -- calls in text that are none (rows 45, 46) ---------------------------------------------------------------------------------

MARKUP = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
_IN_LINE = MARKUP.replace("\n", "")
QUOTED = f"Models write this:\n```xml\n{MARKUP}\n```\nand `{_IN_LINE}`"
PYTHON = '[get_weather(city=__import__("os").system("touch /tmp/athena-was-here"))]'
REDOS = "<tool_cal" * 40_000 + "<tool_call" + " " * 100_000 + "{" * 20_000


def _text(name: str, text: str, field: str = "content", finish: str = "stop") -> None:
    @fault(name)
    async def script(talk: Talk) -> None:
        size = max(7, len(text) // 50)
        deltas = [{field: text[start : start + size]} for start in range(0, len(text), size)]
        message = {"content": None, field: text}
        if field != "content":
            deltas.append({"content": "so"})
            message["content"] = "so"
        await talk.say(chat_stream(deltas, finish), chat_whole(message, finish))


_text("text-call", "Let me see. " + MARKUP)
_text("text-quoted", QUOTED)
_text("text-in-think", MARKUP, "reasoning_content")
_text("text-unclosed", 'I call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Par')
_text("text-unclosed-length", 'I call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Par', finish="length")
_text("text-python", PYTHON)
_text("text-redos", REDOS)
_text("text-nested-open", "<tool_call>" * 20_000)


# -- endless sending (row 48) ------------------------------------------------------------------------------------------------


@fault("flood")
async def _flood(talk: Talk) -> None:
    """200 MiB of text as fast as it is taken."""
    record = chunk({"content": "x" * 16_000})
    await talk.head()
    for _ in range(200 * 64):
        await talk.send(record)
    await talk.send(chunk({}, "stop"), DONE)
    await talk.end()


# -- whose answer is it? (row 52) --------------------------------------------------------------------------------------------


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

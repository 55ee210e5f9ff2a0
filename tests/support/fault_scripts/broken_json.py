"""JSON that is not what it should be (rows 29 to 31)."""

from __future__ import annotations

import json

from support.fault_scripts.registry import fault
from support.upstream_speech import call_entry, call_piece, calls, chat_stream, chat_whole, chunk, encode, frame
from support.upstream_talk import Talk


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
        chat_whole({"content": None, "tool_calls": [call_entry("call_1", "a", arguments)]}),
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

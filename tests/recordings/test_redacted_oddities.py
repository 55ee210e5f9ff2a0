"""Answers that are odd, and how they are redacted: without an exception, and to a recording that says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena.recording import file
from athena.recording.lines import Recording
from athena.recording.redact import redacted
from athena.recording.shapes import still_reproduces
from support.recorded import DIALECTS, KEY, Recorded, answers, cut

_HEAD = b'"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m"'


def _chat(*records: bytes) -> bytes:
    return b"".join(b"data: %b\n\n" % record for record in records) + b"data: [DONE]\n\n"


def _said(index: bytes, text: bytes = b"Hi", more: bytes = b"") -> bytes:
    return b'{%b,"choices":[{"index":%b,"delta":{"content":"%b"%b},"finish_reason":null}]}' % (_HEAD, index, text, more)


_CALL = b',"tool_calls":[{"index":%b,"id":"call_1","function":{"name":"get_weather","arguments":"{}"}}]'
_ERROR_IN_FIELD = b'{%b,"choices":[],"x_groq":{"id":"req_1","error":"over capacity"}}' % _HEAD
STREAMS = {
    "a list as a place": _chat(_said(b"[0]"), _said(b"[1]")),
    "an object as a place": _chat(_said(b"{}"), _said(b'{"a":1}')),
    "a list as a call's place": _chat(_said(b"0", more=_CALL % b"[0]")),
    "a field with a letter of its own": _chat(_said(b"0"), _ERROR_IN_FIELD),
    "a number without end": _chat(_said(b"0", more=b',"x":1' + b"0" * 5000), _said(b"0", b"Secret")),
    "a mark of the byte order": b"\xef\xbb\xbf" + _chat(_said(b"0"), _said(b"0", b"Secret")),
}
WHOLE = {
    "a type of error of its own": b'{"object":"error","message":"bad things","type":"OddServerError","code":500}',
    "a number without end": b'{%b,"choices":[{"index":0,"message":{"content":"Secret","x":1%b},"finish_reason":"stop"}]}'
    % (_HEAD, b"0" * 5000),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("client", DIALECTS)
def test_odd_streams(client: str, name: str) -> None:
    recording = Recorded().serve(client, "openai_chat/m", (200, cut(STREAMS[name], 1)))
    _is_itself(recording)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("client", DIALECTS)
def test_odd_whole_answers(client: str, name: str) -> None:
    _is_itself(Recorded().serve(client, "openai_chat/m", (200, [WHOLE[name]]), stream=False))


def test_a_field_between_pieces_of_arguments() -> None:
    """How much of the arguments is held when it comes depends on what they say."""
    pieces = ('{"city": "Z\u00fcr', r'ich", "note": "line \u00e9 \ud8')
    call = {"type": "tool_use", "id": "toolu_a", "name": "get_weather", "input": {}}
    records: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                                              "content": [], "stop_reason": None, "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": call},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
          for piece in pieces),
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    ]  # fmt: skip
    stream = b"".join(f"event: {record['type']}\ndata: {json.dumps(record)}\n\n".encode() for record in records)
    _is_itself(Recorded().serve("anthropic_messages", "anthropic_messages/m", (200, [stream])))


@pytest.mark.parametrize("said", [b"404 page not found", b"Not Found", b"Method Not Allowed\n", b'{"detail":"Not Found"}'])
def test_a_path_that_is_missing(said: bytes) -> None:
    _is_itself(Recorded().serve("openai_chat", "openai_chat/m", (404, [said]), stream=False))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_records_in_several_lines(dialect: str) -> None:
    world, tried = Recorded(), 0
    for _, stream, _ in answers(dialect):
        spread = [_in_lines(line) for line in stream.replace(b"\r\n", b"\n").split(b"\n")]
        _is_itself(world.serve(dialect, f"{dialect}/m", (200, cut(b"\n".join(spread), tried))))
        tried += 1
    assert tried


def _in_lines(line: bytes) -> bytes:
    """The same record, written in several lines of one event."""
    try:
        value = json.loads(line.removeprefix(b"data: "))
        pretty = json.dumps(value, indent=1, ensure_ascii=False).encode()
    except ValueError:
        return line
    return b"\n".join(b"data: " + part for part in pretty.split(b"\n"))


def _is_itself(recording: Recording) -> None:
    clean = redacted(recording, KEY)
    assert still_reproduces(clean), clean.header.notes
    assert b"Secret" not in file.encode(clean)

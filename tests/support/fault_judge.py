"""What a client's wire shows, read strictly and without any SDK: the second opinion beside the SDKs'.

`read_answer` speaks HTTP over a raw socket; `judge` decides whether the answer is whole, an error before its first byte, an
error in the middle, or a lie: an answer that ends without an end, a call that is closed although it is not complete, anything
after the end, bytes that are not UTF-8.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Literal

import msgspec

from support.answer_reader import read_stream, read_whole
from support.canonical import Seen
from support.patience import PATIENCE

Outcome = Literal["OK", "PRE", "MID"]

SCHEMA = {"type": "object", "properties": {"p": {"type": "integer"}, "city": {"type": "string"}}}
NAMES = ("a", "b", "c", "get_weather", "get_time")


class Answer(msgspec.Struct):
    """An HTTP answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float
    complete: bool
    """Its framing says that it is whole."""
    raw: bytes = b""


class Verdict(msgspec.Struct):
    """What it is worth."""

    outcome: Outcome
    status: int
    """HTTP status, or the status an error frame stands for where the dialect shows it; 0 where it does not."""
    lies: list[str] = []
    begun: int = 0
    """Calls begun and never closed."""
    seen: Seen | None = None
    """What the answer says; None for an error, and where it cannot be read."""


def request_body(dialect: str, model: str, *, stream: bool, tools: bool = True) -> tuple[str, dict[str, Any]]:
    """A request of that dialect: path and body."""
    if dialect == "openai_chat":
        body: dict[str, Any] = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
        if tools:
            body["tools"] = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
        return "/v1/chat/completions", body
    if dialect == "anthropic_messages":
        body = {"model": model, "stream": stream, "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
        if tools:
            body["tools"] = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
        return "/v1/messages", body
    if dialect == "openai_responses":
        body = {"model": model, "stream": stream, "input": "Hi"}
        if tools:
            body["tools"] = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in NAMES]
        return "/v1/responses", body
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    if tools:
        body["tools"] = [{"functionDeclarations": [{"name": name, "parametersJsonSchema": SCHEMA} for name in NAMES]}]
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/{model}:{verb}", body


def request_bytes(path: str, body: Any, *headers: str, method: str = "POST") -> bytes:
    """A request as bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(data)}"]).encode("latin-1") + b"\r\n\r\n" + data


def send(port: int, request: bytes) -> socket.socket:
    """A connection with the request written."""
    sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(request)
    return sock


def read_answer(sock: socket.socket, seconds: float = PATIENCE) -> Answer:
    """The answer, to its end by framing or connection; raises TimeoutError when it does not end in time."""
    began = time.monotonic()
    data = b""
    while not (complete := _is_complete(data)):
        left = began + seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no end after {seconds} s; so far: {data[-300:]!r}")
        sock.settimeout(left)
        try:
            more = sock.recv(1 << 20)
        except ConnectionResetError:
            break
        if not more:
            break
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    chunked = headers.get("transfer-encoding") == "chunked"
    body = _unchunk(rest) if chunked else rest
    status = int(line.split(" ")[1]) if line else 0
    return Answer(status, headers, body, time.monotonic() - began, complete, data)


def ask_raw(port: int, dialect: str, model: str, *headers: str, stream: bool, tools: bool = True) -> Answer:
    """One question over a connection of its own."""
    path, body = request_body(dialect, model, stream=stream, tools=tools)
    with send(port, request_bytes(path, body, *headers)) as sock:
        return read_answer(sock)


def _is_complete(data: bytes) -> bool:
    head, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(rest) >= int(line[15:])
    return rest.endswith(b"0\r\n\r\n") and (rest == b"0\r\n\r\n" or rest.endswith(b"\r\n0\r\n\r\n"))


def _unchunk(data: bytes) -> bytes:
    body: list[bytes] = []
    position = 0
    while True:
        end = data.find(b"\r\n", position)
        if end < 0:
            return b"".join(body)
        size = int(data[position:end], 16)
        body.append(data[end + 2 : end + 2 + size])
        position = end + 4 + size


# -- judging ---------------------------------------------------------------------------------------------------------------

_STATUS_OF_TYPE = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "overloaded_error": 529, "timeout_error": 504,
    "api_error": 502,
}  # fmt: skip


def judge(dialect: str, answer: Answer, *, stream: bool) -> Verdict:
    """The verdict on one answer."""
    lies: list[str] = [] if answer.complete else ["the HTTP framing is cut"]
    try:
        text = answer.body.decode("utf-8")
    except UnicodeDecodeError as error:
        return Verdict("OK", answer.status, [*lies, f"not UTF-8: {error}"])
    if answer.status != 200:
        return Verdict("PRE", answer.status, lies + _error_lies(dialect, text, answer))
    if not stream:
        value = json.loads(text)
        if value.get("error"):
            lies.append("an error in a 200")
        verdict = Verdict("OK", 200, lies)
        if not lies:
            verdict.seen = read_whole(dialect, value)
        return verdict
    records = _records(text, lies)
    verdict = _JUDGES[dialect](records)
    verdict.lies[:0] = lies
    if verdict.outcome == "OK" and not verdict.lies:
        verdict.seen = read_stream(dialect, records)
    return verdict


def _error_lies(dialect: str, text: str, answer: Answer) -> list[str]:
    """Is the body the dialect's error form?"""
    try:
        error = json.loads(text)["error"]
        known = {
            "openai_chat": {"message", "type", "param", "code"},
            "openai_responses": {"message", "type", "param", "code"},
            "anthropic_messages": {"message", "type"},
            "gemini": {"code", "message", "status"},
        }[dialect]
        assert known <= set(error), f"the error lacks {known - set(error)}"
        assert isinstance(error["message"], str)
        assert error["message"]
        if dialect == "gemini":
            assert error["code"] == answer.status, "code and status differ"
        if dialect == "anthropic_messages":
            assert json.loads(text)["type"] == "error"
        assert "request-id" in answer.headers, "no request-id"
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        return [f"not an error of the dialect: {error!r}: {text[:200]}"]
    return []


def _records(text: str, lies: list[str]) -> list[tuple[str, Any]]:
    """The events of a stream; everything that is neither an event nor a keep-alive is a lie."""
    records: list[tuple[str, Any]] = []
    blocks = text.replace("\r\n", "\n").split("\n\n")
    if blocks[-1]:
        lies.append(f"bytes after the last event: {blocks[-1][:100]!r}")
    for block in blocks[:-1]:
        event, data = "", None
        for line in block.split("\n"):
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: ") and data is None:
                data = line[6:]
            elif line and not line.startswith(":"):
                lies.append(f"an odd line: {line[:100]!r}")
        if data is None:
            continue
        try:
            records.append((event, data if data == "[DONE]" else json.loads(data)))
        except ValueError:
            lies.append(f"not JSON: {data[:100]!r}")
    return records


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return text.startswith('{"p":[[[[') and text.endswith("]]]]}")


def _judge_chat(records: list[tuple[str, Any]]) -> Verdict:
    lies: list[str] = []
    finish: str | None = None
    arguments: dict[int, str] = {}
    done = failed = False
    for _, value in records:
        if failed and value == "[DONE]":
            # Clients of this dialect wait for it, and no SDK reads past the error.
            continue
        if done or failed:
            lies.append(f"something after the end: {value!r}"[:200])
        elif value == "[DONE]":
            done = True
        elif value.get("error"):
            failed = True
        else:
            for choice in value["choices"]:
                if choice["index"] != 0:
                    continue
                for call in choice["delta"].get("tool_calls") or ():
                    index = call["index"]
                    if index not in arguments:
                        if index != len(arguments) or not call.get("id") or not call["function"].get("name"):
                            lies.append(f"a call begins badly: {call!r}")
                        arguments[index] = ""
                    arguments[index] += call["function"].get("arguments") or ""
                finish = choice["finish_reason"] or finish
    if failed and finish is not None:
        lies.append("an error after a finish reason")
    if not failed and not (done and finish):
        lies.append("ended without an end")
    cut = [text for text in arguments.values() if not _is_object(text)]
    if finish in ("stop", "tool_calls") and cut:
        lies.append(f"a call that is not complete: {cut[0][:100]!r}")
    return Verdict("MID" if failed else "OK", 0 if failed else 200, lies, len(cut))


def _judge_messages(records: list[tuple[str, Any]]) -> Verdict:
    lies: list[str] = []
    open_blocks: dict[int, list[str] | None] = {}
    stop: str | None = None
    done, failed = False, 0
    for event, value in records:
        kind = value.get("type")
        if event != kind:
            lies.append(f"event {event!r} is {kind!r}")
        if done or failed:
            lies.append(f"something after the end: {kind}")
        if kind == "message_stop":
            done = True
        elif kind == "error":
            failed = _STATUS_OF_TYPE[value["error"]["type"]]
        elif kind == "content_block_start":
            if open_blocks:
                lies.append("two blocks are open")
            open_blocks[value["index"]] = [] if value["content_block"]["type"] == "tool_use" else None
        elif kind == "content_block_delta" and value["delta"]["type"] == "input_json_delta":
            pieces = open_blocks[value["index"]]
            assert pieces is not None
            pieces.append(value["delta"]["partial_json"])
        elif kind == "content_block_stop":
            pieces = open_blocks.pop(value["index"])
            if pieces is not None and not _is_object("".join(pieces) or "{}"):
                lies.append(f"a call that is not complete was closed: {''.join(pieces)[:100]!r}")
        elif kind == "message_delta":
            stop = value["delta"]["stop_reason"] or stop
    if failed and stop is not None:
        lies.append("an error after a stop reason")
    if not failed and not (done and stop):
        lies.append("ended without an end")
    if done and open_blocks and stop != "max_tokens":
        lies.append("a block was left open")
    begun = sum(pieces is not None for pieces in open_blocks.values())
    return Verdict("MID" if failed else "OK", failed or 200, lies, begun)


def _judge_responses(records: list[tuple[str, Any]]) -> Verdict:
    lies: list[str] = []
    begun: set[str] = set()
    end = ""
    last = -1
    for event, value in records:
        kind = value.get("type")
        if event and event != kind:
            lies.append(f"event {event!r} is {kind!r}")
        if end:
            lies.append(f"something after the end: {kind}")
        if value.get("sequence_number", last + 1) <= last:
            lies.append("sequence numbers do not rise")
        last = value.get("sequence_number", last + 1)
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            end = kind
            calls = [item for item in value["response"]["output"] if item["type"] == "function_call"]
            for item in calls:
                if end == "response.completed" and not _is_object(item["arguments"]):
                    lies.append(f"a call that is not complete: {item['arguments'][:100]!r}")
        elif kind == "error":
            end = "response.failed"
        elif kind == "response.output_item.added" and value["item"]["type"] == "function_call":
            begun.add(value["item"]["id"])
        elif kind == "response.output_item.done" and value["item"]["type"] == "function_call":
            begun.discard(value["item"]["id"])
            if value["item"].get("status") == "completed" and not _is_object(value["item"]["arguments"]):
                lies.append(f"a call that is not complete was closed: {value['item']['arguments'][:100]!r}")
    if not end:
        lies.append("ended without an end")
    return Verdict("MID" if end == "response.failed" else "OK", 0 if end == "response.failed" else 200, lies, len(begun))


def _judge_gemini(records: list[tuple[str, Any]]) -> Verdict:
    lies: list[str] = []
    finish, failed = "", 0
    for _, value in records:
        if failed:
            lies.append("something after the end")
        if "error" in value:
            failed = value["error"]["code"]
        # A prompt that is blocked has no answer, and therefore no reason why it ended.
        finish = (value.get("promptFeedback") or {}).get("blockReason") or finish
        for candidate in value.get("candidates") or ():
            finish = candidate.get("finishReason") or finish
    if failed and finish:
        lies.append("an error after a finish reason")
    if not failed and not finish:
        lies.append("ended without an end")
    return Verdict("MID" if failed else "OK", failed or 200, lies)


_JUDGES = {
    "openai_chat": _judge_chat,
    "anthropic_messages": _judge_messages,
    "openai_responses": _judge_responses,
    "gemini": _judge_gemini,
}

"""A proxy between the gateway and an inference server that keeps what was asked and answered, and what that answer says.

What a client should have got is decided by the server's own bytes, read here without Athena.
"""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import msgspec

from support.patience import PATIENCE

Call = tuple[str, Any]
"""A name, and the arguments as a value; as text when they are no JSON."""


class Asked(msgspec.Struct):
    """One exchange with the server."""

    path: str
    body: dict[str, Any]
    status: int
    answer: str

    def records(self) -> list[dict[str, Any]]:
        """The answer's JSON: one value, or those of its stream."""
        if not self.body.get("stream") or self.status != 200:
            return [json.loads(self.answer)]
        lines = (line.removeprefix("data: ") for line in self.answer.splitlines() if line.startswith("data: "))
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def calls(self) -> list[Call]:
        """The native calls of the answer."""
        return _READERS[self.path.rpartition("/v1/")[2]](self.records())

    def text(self) -> str:
        """The visible text and the reasoning of the answer, as far as the server did not make calls of it."""
        return _TEXTS[self.path.rpartition("/v1/")[2]](self.records())

    def failed(self) -> bool:
        """Did the server refuse, or break a stream off with an error of its own? Its Messages API writes that flat."""
        if self.status != 200:
            return True
        return any(record.get("error") or record.keys() >= {"code", "message"} for record in self.records())

    def is_cut(self) -> bool:
        """Did the answer end at the limit of tokens, whatever its own word for that is?"""
        return any(word in self.answer for word in ('"finish_reason":"length"', '"stop_reason":"max_tokens"')) or (
            '"output_tokens":400' in self.answer
        )


class UpstreamTap:
    """Use as a context manager; `asked` is what went through to the server at the port `behind`, in order."""

    def __init__(self) -> None:
        self.behind = 0
        self.asked: list[Asked] = []
        self._begun = 0
        tap = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

            def do_GET(self) -> None:
                self._pass_on("GET", b"")

            def do_POST(self) -> None:
                self._pass_on("POST", self.rfile.read(int(self.headers["content-length"])))

            def _pass_on(self, method: str, body: bytes) -> None:
                tap._begun += method == "POST"
                status, data = 0, b""
                connection = http.client.HTTPConnection("127.0.0.1", tap.behind, timeout=PATIENCE)
                try:
                    connection.request(method, self.path, body, {"content-type": "application/json"})
                    answer = connection.getresponse()
                    status = answer.status
                    self.send_response(status)
                    self.send_header("content-type", answer.headers["content-type"] or "application/json")
                    self.send_header("connection", "close")
                    self.end_headers()
                    while piece := answer.read1():
                        data += piece
                        self.wfile.write(piece)
                finally:
                    connection.close()
                    if method == "POST":
                        tap.asked.append(Asked(self.path, json.loads(body), status, data.decode()))
                self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def is_quiet(self) -> bool:
        """Has everything been kept that went through? A client knows the end of an answer before we do."""
        return self._begun == len(self.asked)

    def __enter__(self) -> UpstreamTap:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


def value_of(arguments: str) -> Any:
    """Arguments as a value; text that is not JSON stays text."""
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return arguments


def chat_parts(records: list[dict[str, Any]]) -> tuple[list[Call], str, str]:
    """Calls, text and reasoning of a Chat answer, whole or streamed."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    text = reasoning = ""
    for record in records:
        for choice in record.get("choices") or ():
            said = choice.get("message") or choice.get("delta") or {}
            text += said.get("content") or ""
            reasoning += said.get("reasoning_content") or ""
            for place, call in enumerate(said.get("tool_calls") or ()):
                index = call.get("index", place)
                names[index] = names.get(index, "") + (call["function"].get("name") or "")
                arguments[index] = arguments.get(index, "") + (call["function"].get("arguments") or "")
    return [(names[index], value_of(arguments[index])) for index in sorted(names)], text, reasoning


def _messages_calls(records: list[dict[str, Any]]) -> list[Call]:
    if "content" in records[0]:
        return [(block["name"], block["input"]) for block in records[0]["content"] if block["type"] == "tool_use"]
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for record in records:
        if record.get("type") == "content_block_start" and record["content_block"]["type"] == "tool_use":
            names[record["index"]] = record["content_block"]["name"]
        elif record.get("type") == "content_block_delta" and record["delta"]["type"] == "input_json_delta":
            arguments[record["index"]] = arguments.get(record["index"], "") + record["delta"]["partial_json"]
    return [(name, value_of(arguments.get(index) or "{}")) for index, name in names.items()]


def _messages_text(records: list[dict[str, Any]]) -> str:
    if "content" in records[0]:
        return "".join(block.get("text", "") + block.get("thinking", "") for block in records[0]["content"])
    deltas = [record["delta"] for record in records if record.get("type") == "content_block_delta"]
    return "".join(delta.get("text", "") + delta.get("thinking", "") for delta in deltas)


def _items(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last = records[-1].get("response", records[-1])
    return list(last.get("output") or ())


def _responses_calls(records: list[dict[str, Any]]) -> list[Call]:
    return [(item["name"], value_of(item["arguments"])) for item in _items(records) if item["type"] == "function_call"]


def _responses_text(records: list[dict[str, Any]]) -> str:
    parts = [part for item in _items(records) for part in (*(item.get("content") or ()), *(item.get("summary") or ()))]
    return "".join(part.get("text", "") for part in parts)


_READERS = {
    "chat/completions": lambda records: chat_parts(records)[0],
    "messages": _messages_calls,
    "responses": _responses_calls,
}
_TEXTS = {
    "chat/completions": lambda records: "".join(chat_parts(records)[1:]),
    "messages": _messages_text,
    "responses": _responses_text,
}

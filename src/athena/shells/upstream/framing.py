"""Where one HTTP/1 response ends, to the byte (RFC 9112), without IO.

Hostile upstream. llhttp (through httptools, in its strict mode) reads the head and the chunks; the head is cut off first, so
that lengths are plain arithmetic here. What follows the end of a response belongs to no request: it is reported as `stray` and
never parsed, because a pooled connection that hands it on answers the next request with it.

What llhttp allows and we do not: both lengths, codings other than chunked, chunked in HTTP/1.0, HTTP/2.0, statuses above 599.
"""

from __future__ import annotations

from enum import Enum
from itertools import repeat

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from athena.errors import UpstreamProtocol

_MAX_INTERIM_RESPONSES = 20
_LONE_BYTES = 32 * 1024
"""The longest chunk that is looked at without the parser."""
_BLANKS = repeat(" \t")
_BODYLESS = frozenset({204, 304})


class _Phase(Enum):
    HEAD = 0
    LENGTH = 1
    CHUNKED = 2
    UNTIL_EOF = 3
    COMPLETE = 4


class _MessageBegan(Exception):
    """Raised into the parser to stop it at the first byte of a second message."""


class ResponseFraming:
    """Feed what the connection brings; `pieces` collects the body, `complete` and `stray` say how it ended."""

    status = 0
    started = False
    keep_alive = False
    complete = False
    stray = False
    between_chunks = False
    """Is it known that the next byte begins a chunk, with data before it? It never is when that is no whole line."""
    _head_complete = False
    _phase = _Phase.HEAD
    _parser: HttpResponseParser | None = None
    _held: bytearray | None = None
    _head_bytes = 0
    _interim = 0
    _remaining = 0
    _overhead = 0
    _ended = False
    _tail = b""
    _version = ""

    def __init__(self, *, max_head_bytes: int, max_fields: int) -> None:
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append
        self._max_head = max_head_bytes
        self._max_fields = max_fields
        self._fields: list[bytes] = []
        """Names and values by turns."""

    @property
    def has_head(self) -> bool:
        """Are `status` and `headers` those of the final response?"""
        return self._phase is not _Phase.HEAD

    def feed(self, data: bytes) -> None:
        """The next bytes of the connection; UpstreamProtocol if no response may look like that."""
        self.started = True
        phase = self._phase
        if phase is _Phase.HEAD:
            data = self._feed_head(data)
            if not data:
                return
            phase = self._phase
        if phase is _Phase.CHUNKED:
            self._feed_chunks(data)
        elif phase is _Phase.LENGTH:
            self._feed_length(data)
        elif phase is _Phase.UNTIL_EOF:
            self.pieces.append(data)
        else:
            self.stray = True

    def lone_chunk(self, data: bytes) -> bytes | None:
        """The piece of the body that these bytes are, where they are one whole chunk, written in the usual way, between two
        others: the parser then has nothing to do with them. None: `feed` them."""
        if not self.between_chunks or len(data) > _LONE_BYTES:
            return None
        line = data.find(b"\r\n", 1, 9)
        size = len(data) - line - 4
        if line < 0 or size <= 0 or data[:line] != b"%x" % size or data[-2:] != b"\r\n":
            return None
        self._tail, self._overhead = data[-5:], 0
        return data[line + 2 : -2]

    def feed_eof(self) -> bool:
        """The connection ended in order; is the response complete by that?"""
        if self._phase is _Phase.UNTIL_EOF:
            self._complete()
        return self.complete

    def stop(self) -> None:
        """No more will be fed. The parser and this object know each other: part them, or only the collector could."""
        self._parser = None

    # -- the head ----------------------------------------------------------------------------------------------------------

    def _feed_head(self, data: bytes) -> bytes:
        """Read heads until the final one; returns the bytes that follow it, if it is there."""
        while True:
            end = self._head_end(data)
            if end < 0:
                return b""
            if self._held is not None:
                data, self._held = bytes(self._held), None
            self._parse_head(data[:end])
            data = data[end:]
            if self.status >= 200:
                self._begin_body()
                return data
            self._skip_interim()

    def _head_end(self, data: bytes) -> int:
        """Offset after the blank line in all that is held, or -1 with `data` held."""
        held = self._held
        if held is None:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._held = held = bytearray(data)
        else:
            seen = len(held)
            held += data
            end = held.find(b"\r\n\r\n", max(0, seen - 3))
        total = self._head_bytes + (end + 4 if end >= 0 else len(held or b""))
        if total > self._max_head:
            raise UpstreamProtocol("the response's headers are too large", code="header_limit")
        if end < 0:
            return -1
        self._head_bytes = total
        return end + 4

    def _parse_head(self, head: bytes) -> None:
        parser = HttpResponseParser(self)
        try:
            parser.feed_data(head)
        except HttpParserUpgrade:
            raise UpstreamProtocol("the upstream switched protocols, unasked") from None
        except HttpParserError as cause:
            raise UpstreamProtocol(f"the response is not valid HTTP: {cause}") from cause
        self.status = parser.get_status_code()
        if not self._head_complete:
            raise UpstreamProtocol("the response's head is malformed")
        self._version = parser.get_http_version()
        if self._version not in ("1.1", "1.0"):
            raise UpstreamProtocol(f"the response is HTTP/{self._version}")
        if not 100 <= self.status <= 599:
            raise UpstreamProtocol(f"the response has status {self.status}")
        self._parser = parser
        self._read_fields()

    def _read_fields(self) -> None:
        fields = self._fields
        if len(fields) > 2 * self._max_fields:
            self._check_count()
        # All of them at once: no value holds the end of a line.
        texts = b"\r\n".join(fields).decode("latin-1").split("\r\n")
        headers = dict(zip(map(str.lower, texts[::2]), map(str.strip, texts[1::2], _BLANKS), strict=False))
        self.headers = headers
        if 2 * len(headers) == len(texts) == len(fields):
            return
        headers.clear()
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            key, text = name.decode("ascii").lower(), value.decode("latin-1").strip(" \t")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def _check_count(self) -> None:
        if len(self._fields) > 2 * self._max_fields:
            raise UpstreamProtocol("the response has too many header fields", code="header_limit")

    def _skip_interim(self) -> None:
        """A 1xx says nothing yet; a server may send some, not without end."""
        self._interim += 1
        if self._interim > _MAX_INTERIM_RESPONSES:
            raise UpstreamProtocol("too many 1xx responses", code="header_limit")
        self.headers.clear()
        self._head_complete = False
        self._ended = False
        self._fields.clear()

    def _begin_body(self) -> None:
        headers = self.headers
        length = headers.get("content-length")
        coding = headers.get("transfer-encoding")
        connection = headers.get("connection")
        if connection is None:
            self.keep_alive = self._version == "1.1"
        else:
            connection = connection.lower()
            self.keep_alive = "close" not in connection and (self._version == "1.1" or "keep-alive" in connection)
        if coding is not None:
            if length is not None:
                raise UpstreamProtocol("the response has both Content-Length and Transfer-Encoding")
            if coding.strip().lower() != "chunked" or self._version == "1.0":
                raise UpstreamProtocol("the response has a Transfer-Encoding that cannot be read")
        if length is not None and not (length.isascii() and length.isdigit() and len(length) < 19):
            raise UpstreamProtocol("the response's Content-Length is not a number")
        if self.status in _BODYLESS:
            self._complete()
        elif coding is not None:
            self._phase = _Phase.CHUNKED
        elif length is None:
            self._phase = _Phase.UNTIL_EOF
            self.keep_alive = False
            self._parser = None
        elif not (remaining := int(length)):
            self._complete()
        else:
            self._phase = _Phase.LENGTH
            self._remaining = remaining
            self._parser = None

    # -- the body ----------------------------------------------------------------------------------------------------------

    def _feed_length(self, data: bytes) -> None:
        remaining = self._remaining - len(data)
        if remaining < 0:
            self.stray = True
            data = data[:remaining]
        self.pieces.append(data)
        self._remaining = remaining
        if remaining <= 0:
            self._complete()

    def _feed_chunks(self, data: bytes) -> None:
        parser = self._parser
        assert parser is not None
        before = len(self.pieces)
        self.between_chunks = False
        try:
            parser.feed_data(data)
        except HttpParserError as cause:
            if not self._ended:
                raise UpstreamProtocol(f"the response is not valid HTTP: {cause}") from cause
            self.stray = True
        self._check_count()
        self._tail = data[-5:] if len(data) >= 5 else (self._tail + data)[-5:]
        if self._ended:
            # The parser passes over line ends between messages. The blank line that ends a message follows a byte that is no
            # line end, so these five bytes show whether anything came after it.
            if self._tail[1:] != b"\r\n\r\n" or self._tail[:1] in (b"\r", b"\n"):
                self.stray = True
            self._complete()
        elif len(self.pieces) == before:
            # Extensions and trailers are no data; they must not go on for ever.
            self._overhead += len(data)
            if self._overhead > self._max_head:
                raise UpstreamProtocol("a chunk's extension or the trailers are too large", code="header_limit")
        else:
            self._overhead = 0
            # Inside of a chunk the data ends with the piece; the line with the size of a next one does not end like a line.
            end = self.pieces[-1][-6:]
            self.between_chunks = end[-1:] == b"\n" and data.endswith(end + b"\r\n") and not data.endswith(end)

    def _complete(self) -> None:
        self._phase = _Phase.COMPLETE
        self.complete = True
        self.between_chunks = False
        self._parser = None

    # -- called by the parser ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A second message in the same response is stray: stop before any of it is taken."""
        if self._ended:
            raise _MessageBegan

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or a trailer."""
        self._fields += (name, value)

    def on_headers_complete(self) -> None:
        self._head_complete = True

    def on_message_complete(self) -> None:
        """The last chunk and its trailers are through."""
        self._ended = True

"""The body of a file upload (`multipart/form-data`, RFC 7578): its fields, and its one file.

Labelled "hostile client". Parts are found by splitting at the boundary that the content type names; nothing is nested, nothing
is decoded beyond the names, and the number of parts is bounded.
"""

from __future__ import annotations

import re

import msgspec

from athena.errors import InvalidRequest

_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb'(?:^|[;\s])name="([^"\r\n]{0,200})"')
_FILE = re.compile(rb'[;\s]filename="((?:[^"\\\r\n]|\\.){0,1000})"')
_MOST_PARTS = 32
_FIELD_BYTES = 64 * 1024


class Upload(msgspec.Struct, frozen=True):
    """What was uploaded."""

    fields: dict[str, str]
    name: str
    """The file's name at its client."""
    content: bytes


def read_upload(body: bytes, content_type: str) -> Upload:
    """The file and the fields of a form. Raises InvalidRequest."""
    found = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or found is None:
        raise InvalidRequest("a file is uploaded as multipart/form-data", code="content_type", path="file")
    mark = b"--" + (found[1] or found[2]).encode("latin-1")
    parts = (b"\r\n" + body).split(b"\r\n" + mark, _MOST_PARTS + 1)
    if len(parts) < 3 or len(parts) > _MOST_PARTS or not parts[-1].startswith(b"--"):
        raise InvalidRequest("the upload is cut short, or has too many parts", code="invalid_body", path="file")
    fields: dict[str, str] = {}
    name, content = "", None
    for part in parts[1:-1]:
        head, blank, value = part.partition(b"\r\n\r\n")
        label = _NAME.search(head)
        if not blank or label is None or len(head) > 8192:
            raise InvalidRequest("a part of the upload has no name", code="invalid_body", path="file")
        file = _FILE.search(head)
        if label[1] == b"file":
            name, content = file[1].decode("utf-8", "replace") if file else "file", value
        elif len(value) <= _FIELD_BYTES:
            fields[label[1].decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    if content is None:
        raise InvalidRequest("Missing required parameter: 'file'.", path="file")
    return Upload(fields, name or "file", content)

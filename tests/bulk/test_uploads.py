"""Uploads of files: what SDKs send, and what nobody should."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.bulk.multipart import read_upload
from athena.errors import InvalidRequest

TYPE = "multipart/form-data; boundary=mark"


def body(*parts: tuple[str, bytes], end: bytes = b"--mark--\r\n") -> bytes:
    return b"".join(b"--mark\r\n%b\r\n\r\n%b\r\n" % (head.encode(), content) for head, content in parts) + end


PURPOSE = ('Content-Disposition: form-data; name="purpose"', b"batch")
FILE = ('Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\nContent-Type: text/plain', b"{}\r\n--mar\r\n{}")


def test_an_upload_as_the_sdks_send_it() -> None:
    found = read_upload(body(PURPOSE, FILE), TYPE)
    assert found.fields == {"purpose": "batch"}
    assert (found.name, found.content) == ("in.jsonl", FILE[1])
    quoted = read_upload(body(FILE, PURPOSE), 'multipart/form-data; charset=utf-8; boundary="mark"')
    assert quoted.content == FILE[1]


BAD: dict[str, tuple[bytes, str]] = {
    "another type": (body(FILE), "application/json"),
    "no boundary": (body(FILE), "multipart/form-data"),
    "another boundary": (body(FILE), "multipart/form-data; boundary=other"),
    "nothing": (b"", TYPE),
    "no end": (body(FILE, end=b""), TYPE),
    "no file": (body(PURPOSE), TYPE),
    "a part without a name": (body(("Content-Type: text/plain", b"x")), TYPE),
    "a part without a head": (b"--mark\r\nx\r\n--mark--", TYPE),
    "too many parts": (body(*[PURPOSE] * 40, FILE), TYPE),
    "a long head": (body((FILE[0] + "\r\nx-long: " + "y" * 9000, b"x")), TYPE),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_upload(name: str) -> None:
    with pytest.raises(InvalidRequest):
        read_upload(*BAD[name])


@given(st.binary(max_size=200), st.sampled_from([TYPE, "multipart/form-data; boundary=-", "multipart/form-data;boundary=\x00"]))
def test_any_bytes_are_read_or_refused(data: bytes, kind: str) -> None:
    for tried in (data, b"--mark\r\n" + data, body(('Content-Disposition: form-data; name="file"', data))):
        with contextlib.suppress(InvalidRequest):
            read_upload(tried, kind)


@given(st.binary(max_size=500).filter(lambda content: b"\r\n--mark" not in content))
def test_the_content_is_kept_byte_for_byte(content: bytes) -> None:
    assert read_upload(body(PURPOSE, (FILE[0], content)), TYPE).content == content

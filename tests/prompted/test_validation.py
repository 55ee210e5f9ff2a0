"""Schemas are the client's: nothing they point at is fetched."""

from __future__ import annotations

import socket
from pathlib import Path

from athena.prompted.validation import compiled


def test_references_to_other_documents_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "schema.json"
    secret.write_text('{"type": "integer"}', encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for reference in (address, secret.as_uri()):
            check = compiled({"type": "object", "properties": {"a": {"$ref": reference}}})
            assert check({"a": "text"}) == "", "the referenced document was read"
        try:
            server.accept()
        except TimeoutError:
            return
        raise AssertionError("the reference was fetched")


def test_references_inside_the_schema_hold() -> None:
    check = compiled({"$defs": {"n": {"type": "integer"}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}})
    assert check({"a": 1}) == ""
    assert check({"a": "x"})

"""Schemas are the client's: nothing they point at is fetched, and no check of them takes more than a bounded amount of work."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from benchmarks.hostile_schemas import hostile_schema

from athena.formats.machine.value_types import ToolBook
from athena.model.request import Tool
from athena.prompted.validation import ArgumentCheck, compiled


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


def tool(schema: dict[str, Any]) -> ToolBook:
    return ToolBook([Tool(name="t", schema=schema)])


def test_what_costs_too_much_is_looked_at_by_hand_and_said() -> None:
    hostile = hostile_schema("any_of_references", 30)
    schema = {**hostile.schema, "required": ["city", "day"]}
    verdict = ArgumentCheck(tool(schema)).verdict("t", '{"city": "x"}')
    assert verdict.unchecked == "steps"
    assert "'day' is a required property" in verdict.problem
    assert ArgumentCheck(tool(schema)).verdict("t", '{"city": "x", "day": 1}') == ("", "steps")


@pytest.mark.parametrize(
    ("schema", "arguments", "reason"),
    [
        ({"$ref": "#"}, "{}", "reference"),
        ({"properties": {"a": {"pattern": "(?!a)"}}}, '{"a": "b"}', "pattern"),
        ({"properties": {f"p{number}": {"type": "string"} for number in range(3000)}}, "{}", "schema_size"),
        ({"properties": {"a": {"description": "d" * 70_000}}}, "{}", "schema_size"),
        ({"properties": {"a": {"items": {"pattern": "(ab){1,50}c"}}}}, '{"a": ["%s"]}' % ("ab" * 4000), "steps"),
        ({"properties": {"a": {"type": "string"}}}, '{"a": "%s"}' % ("x" * (1 << 20)), "arguments_size"),
        ({"properties": {"a": {"type": "array"}}}, '{{"a": [{}]}}'.format(",".join(["1"] * 30_000)), "steps"),
    ],
)
def test_why_a_check_was_left_out(schema: dict[str, Any], arguments: str, reason: str) -> None:
    assert ArgumentCheck(tool(schema)).verdict("t", arguments) == ("", reason)


def test_all_checks_of_an_answer_share_one_allowance() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"enum": [f"v{number}" for number in range(500)]}}}}
    check = ArgumentCheck(tool(schema), answer_steps=400_000)
    arguments = '{{"a": [{}]}}'.format(",".join(['"v499"'] * 200))
    reasons = [check.verdict("t", arguments).unchecked for _ in range(6)]
    assert reasons[0] == ""
    assert reasons[-1] == "answer_steps"
    assert reasons == sorted(reasons, key=bool), "once it is used up it stays used up"


def test_many_tools_share_it_too() -> None:
    tools = [Tool(name=f"t{n}", schema={"properties": {f"p{n}": {"type": "string"}}, "title": "x" * 20_000}) for n in range(20)]
    check = ArgumentCheck(ToolBook(tools))
    reasons = [check.verdict(one.name, "{}").unchecked for one in tools]
    assert reasons[0] == ""
    assert reasons[-1] == "answer_steps"


def test_a_long_explanation_is_left_out_but_not_the_verdict() -> None:
    branches = [{"type": "integer", "minimum": number} for number in range(400)]
    schema = {"type": "object", "properties": {"a": {"anyOf": branches}}}
    verdict = ArgumentCheck(tool(schema)).verdict("t", '{"a": "x"}')
    assert verdict.problem
    assert not verdict.unchecked


def test_patterns_hold() -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "^[0-9]{3}-[0-9]{4}$"}}}
    check = ArgumentCheck(tool(schema))
    assert check.verdict("t", '{"a": "555-1234"}') == ("", "")
    assert "does not match" in check.verdict("t", '{"a": "5551234"}').problem


def test_what_is_no_schema_accepts_everything() -> None:
    for schema in (
        {"type": "nonsense"},
        {"properties": 5},
        {"required": "a"},
        {"allOf": 3},
        {"properties": {"a": {"type": 7}}},
    ):
        assert ArgumentCheck(tool(schema)).verdict("t", '{"a": 1}').problem == ""

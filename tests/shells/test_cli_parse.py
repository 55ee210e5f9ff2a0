"""`athena parse`, `formats` and `detect` as a person or a script calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def athena(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "athena", *arguments], input=given, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_lines_come_out_in_order_whatever_is_wrong_with_one(tmp_path: Path, workers: str) -> None:
    records = [json.dumps({"id": number, "text": f"say {number} {CALL}"}) for number in range(3000)]
    records[7] = "not json"
    records[9] = ""
    source, sink = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(records), encoding="utf-8")
    ran = athena("parse", "--jsonl", "--workers", workers, str(source), "-o", str(sink))
    assert ran.returncode == 1
    assert "line 8:" in ran.stderr
    assert "1 of 2999 lines" in ran.stderr
    outcomes = [json.loads(line) for line in sink.read_text(encoding="utf-8").splitlines()]
    assert [outcome["id"] for outcome in outcomes] == [*range(7), None, 8, *range(10, 3000)]
    assert outcomes[7]["errors"][0]["code"] == "bad_record"
    assert outcomes[0] == {
        "id": 0,
        "format": "hermes",
        "text": "say 0 ",
        "thinking": "",
        "tool_calls": [{"id": outcomes[0]["tool_calls"][0]["id"], "name": "f", "arguments": '{"a": 1}'}],
        "incomplete": False,
        "errors": [],
    }


def test_records_say_their_own_format_tools_and_chunks() -> None:
    kimi = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    records = [
        {"id": "a", "chunks": list(kimi), "channel": "reasoning", "tools": [{"name": "f", "input_schema": {}}]},
        {"id": "b", "text": CALL, "tools": [{"type": "function", "function": {"name": "other"}}]},
        {"id": "c", "text": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"},
        {"id": "d", "text": "hidden</think>shown", "starts_in_thinking": True},
        {"id": "e", "text": "x", "format": "no_such_format"},
        {"id": "f"},
    ]
    ran = athena("parse", "--jsonl", given="\n".join(map(json.dumps, records)))
    a, b, c, d, e, f = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [call["name"] for call in a["tool_calls"]] == ["f"]
    assert (b["tool_calls"], b["text"]) == ([], CALL)
    assert (c["incomplete"], c["tool_calls"]) == (True, [])
    assert (d["thinking"], d["text"]) == ("hidden", "shown")
    assert "no_such_format" in e["errors"][0]["message"]
    assert "neither" in f["errors"][0]["message"]


def test_events_are_written_on_request() -> None:
    ran = athena("parse", "--jsonl", "--events", given=json.dumps({"id": 1, "text": CALL}))
    kinds = [event["event"] for event in json.loads(ran.stdout)["events"]]
    assert kinds[0] == "ToolCallStart"
    assert kinds[-1] == "ToolCallComplete"


def test_plain_text_gives_a_result_for_people(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name": "f", "parameters": {"type": "object"}}]', encoding="utf-8")
    ran = athena("parse", "--tools", str(tools), given=f"Look: {CALL}")
    assert ran.returncode == 0
    assert "call      f  {" in ran.stdout
    assert "text      Look:" in ran.stdout


def test_formats_and_detect() -> None:
    listed = athena("formats", "--json")
    ids = [row["id"] for row in json.loads(listed.stdout)]
    assert "kimi_k2" in ids
    assert ids == sorted(ids)
    assert "<|tool_call_begin|>" in athena("formats", "kimi_k2").stdout
    assert athena("formats", "nothing").returncode == 1
    assert athena("detect", "moonshotai/kimi-k2-0905").stdout.strip() == "kimi_k2"


def test_wrong_usage_is_exit_code_two() -> None:
    assert athena("parse", "--repair", "magic").returncode == 2
    assert athena("parse", "--jsonl", "--model", "m").returncode == 2

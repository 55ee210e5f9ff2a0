"""`athena parse`, `formats` and `detect` as a person or a script calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.athena_process import Result, environment, run_athena
from support.patience import PATIENCE

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def athena(*arguments: str, given: str = "") -> Result:
    return run_athena(arguments, Path(), environment(Path.home()), given)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_lines_come_out_in_order_whatever_is_wrong_with_one(tmp_path: Path, workers: str) -> None:
    records = [json.dumps({"id": number, "text": f"say {number} {CALL}"}) for number in range(3000)]
    records[7] = "not json"
    records[9] = ""
    source, sink = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(records), encoding="utf-8")
    ran = athena("parse", "--jsonl", "--workers", workers, str(source), "-o", str(sink))
    assert ran.code == 1
    assert "line 8:" in ran.err
    assert "1 of 2999 lines" in ran.err
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


def test_many_blocks_come_out_in_order_when_early_ones_take_longest(tmp_path: Path) -> None:
    slow = [{"id": number, "chunks": list(f"{CALL} {number} " * 20)} for number in range(100)]
    quick = [{"id": number, "text": f"{number} " + "plain words " * 150} for number in range(100, 2500)]
    source, sink = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(map(json.dumps, slow + quick)), encoding="utf-8")
    assert source.stat().st_size > 16 * 256 * 1024
    assert athena("parse", "--jsonl", "--workers", "3", str(source), "-o", str(sink)).code == 0
    outcomes = [json.loads(line) for line in sink.read_text(encoding="utf-8").splitlines()]
    assert [outcome["id"] for outcome in outcomes] == list(range(2500))
    assert [len(outcome["tool_calls"]) for outcome in outcomes[:100]] == [20] * 100


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
    a, b, c, d, e, f = [json.loads(line) for line in ran.out.splitlines()]
    assert [call["name"] for call in a["tool_calls"]] == ["f"]
    assert (b["tool_calls"], b["text"]) == ([], CALL)
    assert (c["incomplete"], c["tool_calls"]) == (True, [])
    assert (d["thinking"], d["text"]) == ("hidden", "shown")
    assert "no_such_format" in e["errors"][0]["message"]
    assert "neither" in f["errors"][0]["message"]


def test_events_are_written_on_request() -> None:
    ran = athena("parse", "--jsonl", "--events", given=json.dumps({"id": 1, "text": CALL}))
    kinds = [event["event"] for event in json.loads(ran.out)["events"]]
    assert kinds[0] == "ToolCallStart"
    assert kinds[-1] == "ToolCallComplete"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_output_follows_input_at_once(workers: str) -> None:
    command = [sys.executable, "-m", "athena", "parse", "--jsonl", "--workers", workers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(json.dumps({"id": number, "text": CALL}).encode() + b"\n")
            process.stdin.flush()
            # Nothing more is written until this line is answered.
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(ended_by: signal.Signals) -> None:
    command = [sys.executable, "-m", "athena", "parse", "--jsonl", "--workers", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"text": CALL}).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        started = descendants(process.pid)
        assert len(started) >= 2
        process.send_signal(ended_by)
        process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any(map(alive, started)):
            assert time.monotonic() < deadline, "workers were left behind"
            time.sleep(0.05)


def test_a_worker_that_dies_is_an_error_that_says_so() -> None:
    command = [sys.executable, "-m", "athena", "parse", "--jsonl", "--workers", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps({"text": CALL}).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        for pid in descendants(process.pid):
            # Workers have no children; the fork server and the resource tracker are no workers.
            if b"forkserver" in command_line(pid) and not descendants(pid):
                os.kill(pid, signal.SIGKILL)
        process.stdin.write(json.dumps({"text": CALL}).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 1
        assert b"a worker process ended with code -9" in process.stderr.read()


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return children + [below for child in children for below in descendants(child)]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def alive(pid: int) -> bool:
    """Is it there and no zombie?"""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def test_plain_text_gives_a_result_for_people(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name": "f", "parameters": {"type": "object"}}]', encoding="utf-8")
    ran = athena("parse", "--tools", str(tools), given=f"Look: {CALL}")
    assert ran.code == 0
    assert "call      f  {" in ran.out
    assert "text      Look:" in ran.out


def test_formats_and_detect() -> None:
    listed = athena("formats", "--json")
    ids = [row["id"] for row in json.loads(listed.out)]
    assert "kimi_k2" in ids
    assert ids == sorted(ids)
    assert "<|tool_call_begin|>" in athena("formats", "kimi_k2").out
    assert athena("formats", "nothing").code == 1
    assert athena("detect", "moonshotai/kimi-k2-0905").out.strip() == "kimi_k2"


def test_unusable_tools_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    for content, said in (("{", "not JSON"), ("[1]", "tools[0]: expected a tool as an object")):
        tools.write_text(content, encoding="utf-8")
        ran = athena("parse", "--tools", str(tools), given=CALL)
        assert ran.code == 1
        assert f"{tools}: {said}" in ran.err


def test_wrong_usage_is_exit_code_two() -> None:
    assert athena("parse", "--repair", "magic").code == 2
    assert athena("parse", "--jsonl", "--model", "m").code == 2


def test_calls_that_stand_in_a_text_the_model_was_given_are_quotations(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text(f"It says {CALL}", encoding="utf-8")
    ran = athena("parse", "--untrusted", str(page), given=f"The page: {CALL}")
    assert ran.code == 0
    assert "call      none" in ran.out
    assert "quoted from the request" in ran.out
    assert "call      f" in athena("parse", "--untrusted", str(page), "--echo", "allow", given=CALL).out
    events = athena("parse", "--untrusted", str(page), "--events", given=CALL).out.splitlines()
    assert [json.loads(line)["event"] for line in events] == ["TextDelta", "Error"]
    lines = json.dumps({"id": 1, "text": CALL, "untrusted": [f"It says {CALL}"]}) + "\n" + json.dumps({"id": 2, "text": CALL})
    outcomes = [json.loads(line) for line in athena("parse", "--jsonl", given=lines).out.splitlines()]
    assert [(len(outcome["tool_calls"]), outcome["errors"][:1] != []) for outcome in outcomes] == [(0, True), (1, False)]
    allowed = athena("parse", "--jsonl", "--echo", "allow", given=lines).out.splitlines()
    assert [len(json.loads(line)["tool_calls"]) for line in allowed] == [1, 1]
    refused = athena("parse", "--jsonl", "--untrusted", str(page), given=lines)
    assert refused.code == 2
    assert "belong into the records" in refused.err


def test_a_text_without_a_call_and_one_with_half_a_call_say_so() -> None:
    nothing = athena("parse", given='{"name": "x"}')
    assert nothing.code == 0
    assert "nothing in the text is a call in any of the known formats" in nothing.err
    half = athena("parse", "--format", "hermes", given='<tool_call>{"name": "f", "arguments": {"a')
    assert half.code == 1
    assert "the answer ended inside a call of f" in half.out


def test_one_text_as_json() -> None:
    """`-` is standard input, as elsewhere."""
    done = athena("parse", "--json", "-", given=f"Look. {CALL}")
    found = json.loads(done.out)
    assert [(call["name"], call["arguments"]) for call in found["tool_calls"]] == [("f", '{"a": 1}')]
    assert (found["format"], found["text"], found["incomplete"], found["errors"]) == ("hermes", "Look. ", False, [])
    cut = athena("parse", "--json", given=CALL[:45])
    assert cut.code == 1
    assert json.loads(cut.out)["incomplete"]
    both = athena("parse", "--json", "--jsonl")
    assert both.code == 2
    assert "--jsonl and --events write JSON by themselves" in both.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', "with --format json_generic it is one"),
        ("just prose", "nothing in the text is a call in any of the known formats; --model NAME"),
        (" \n", "the text is empty"),
    ],
)
def test_why_there_is_no_call(text: str, said: str) -> None:
    done = athena("parse", given=text)
    assert said in done.err
    assert "call      none" in done.out


def test_a_model_that_is_named_is_not_asked_for() -> None:
    done = athena("parse", "--model", "qwen3-8b", given="just prose")
    assert done.err == "athena: nothing in the text is a call in any of the known formats\n"

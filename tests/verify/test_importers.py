"""Files of other verifiers as they are, and K2VV's two figures by its own definition."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from athena.errors import InvalidRequest
from athena.quality import AnswerOutcome
from athena.shells.cli import cli
from athena.verify.cases import BATTERIES, ExpectedCall, shipped_cases
from athena.verify.importers import detect, read_cases
from athena.verify.judging import SeenCall, Side, judge
from athena.verify.metrics import METRICS
from athena.verify.vendors import read_results, vendor_figures
from support.scripted_apis import Asked, Said, chat_api, refused, said, serving

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def lines(*rows: Any) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


class Vendor(NamedTuple):
    """How a vendor answers one request: what K2VV would note of it."""

    finish: str
    calls: tuple[tuple[str, str], ...] = ()
    status: int = 200

    @property
    def fits(self) -> bool:
        """By hand: `get_weather` wants a city that is a text; `bare` has no schema; `odd` has one that is none."""
        return bool(self.calls) and all(name == "get_weather" and text in GOOD for name, text in self.calls)


GOOD = ('{"city": "Rome"}', '{"city": "Oslo", "more": [1]}')
TOOLS = [
    TOOL,
    {"type": "function", "function": {"name": "bare", "description": "", "parameters": {}}},
    {"type": "function", "function": {"name": "odd", "parameters": {"type": "object", "properties": {"a": {"type": "str"}}}}},
]
VENDORS = (
    Vendor("tool_calls", (("get_weather", GOOD[0]),)),
    Vendor("tool_calls", (("get_weather", GOOD[1]), ("get_weather", GOOD[0]))),
    Vendor("tool_calls", (("get_weather", GOOD[0]), ("get_weather", '{"town": 1}'))),
    Vendor("tool_calls", (("get_weather", '{"city": "Ro'),)),
    Vendor("tool_calls", (("get_waether", GOOD[0]),)),
    Vendor("tool_calls", (("bare", "{}"),)),
    Vendor("tool_calls", (("odd", '{"a": "x"}'),)),
    Vendor("tool_calls"),
    Vendor("stop"),
    Vendor("stop", (("get_weather", GOOD[0]),)),
    Vendor("length"),
    Vendor("", status=400),
)


def answered(vendor: Vendor) -> dict[str, Any]:
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(vendor.calls)
    ]
    message = {"role": "assistant", "content": "x", **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": vendor.finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    return {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def by_the_readme(pairs: list[tuple[Vendor, Vendor]]) -> tuple[float, float]:
    """`tool_call_f1` and `schema_accuracy` as K2VV's README writes them, from pairs of the vendor and the official API."""
    called = [vendor for vendor, _ in pairs if vendor.finish == "tool_calls"]
    tp = sum(vendor.finish == official.finish == "tool_calls" for vendor, official in pairs)
    fp = sum(vendor.finish == "tool_calls" != official.finish for vendor, official in pairs)
    fn = sum(official.finish == "tool_calls" != vendor.finish for vendor, official in pairs)
    precision, recall = tp / (tp + fp), tp / (tp + fn)
    return 2 * precision * recall / (precision + recall), sum(vendor.fits for vendor in called) / len(called)


def test_k2vvs_figures_from_a_recorded_run_equal_its_definition(tmp_path: Path) -> None:
    """Samples as the verifier publishes them, a vendor over a socket, and the official results, once noted and once not."""
    draw = random.Random(13)
    vendors = [draw.choice(VENDORS) for _ in range(120)]
    officials = [draw.choice(VENDORS[:2] + VENDORS[8:9]) for _ in range(120)]
    samples, official, theirs = [], [], []
    for index, (vendor, reference) in enumerate(zip(vendors, officials, strict=True)):
        messages = [{"role": "_input", "content": "S"}, {"role": "user", "content": f"question {index}"}]
        samples.append({"messages": messages, "tools": TOOLS, "model": "kimi-k2", "temperature": 0.6})
        sent = [{"role": "system", "content": "S"}, messages[1]]
        # What the official run sent differs in what the verifier sets by its options.
        request = {"model": "kimi-k2-0905-preview", "messages": sent, "tools": TOOLS, "temperature": 1.0, "max_tokens": 64000}
        official.append(k2vv_row(index, request, reference, noted=True))
        theirs.append(k2vv_row(index, {**request, "model": "vendor"}, vendor, noted=bool(index % 2)))

    def answer(asked: Asked) -> Said:
        vendor = vendors[int(asked.body["messages"][-1]["content"].split()[1])]
        return said(200, answered(vendor)) if vendor.status == 200 else refused(400, "no")

    for name, rows in {"samples": samples, "official": official}.items():
        (tmp_path / f"{name}.jsonl").write_text(lines(*rows))
    with serving(chat_api(answer=answer)) as server:
        result = CliRunner().invoke(
            cli,
            ["verify", "--base-url", f"{server.url}/v1", "--model", "good-model", "--only-cases", "--budget", "120",
             "--cases", str(tmp_path / "samples.jsonl"), "--reference", str(tmp_path / "official.jsonl"), "--json", "-",
             "--no-record", "--yes"],
            env={"ATHENA_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}, standalone_mode=False,
        )  # fmt: skip
        roles = {message["role"] for asked in server.asked if asked.body for message in asked.body["messages"]}
    assert result.exception is None, result.exception
    assert roles == {"system", "user"}
    recorded = json.loads(result.stdout)["k2vv"]
    from_files = vendor_figures(read_results(lines(*theirs)), read_results(lines(*official)))
    f1, accuracy = by_the_readme(list(zip(vendors, officials, strict=True)))
    assert (recorded["requests"], recorded["compared"], from_files.compared) == (120, 120, 120)
    assert recorded["tool_call_f1"] == pytest.approx(f1, abs=0.01)
    assert recorded["schema_accuracy"] == pytest.approx(accuracy, abs=0.01)
    assert from_files.tool_call_f1 == pytest.approx(f1, abs=0.01)
    assert from_files.schema_accuracy == pytest.approx(accuracy, abs=0.01)


def k2vv_row(index: int, request: dict[str, Any], vendor: Vendor, *, noted: bool) -> dict[str, Any]:
    """A line of K2VV's results, with its own note of validity or without."""
    is_answered = vendor.status == 200
    return {
        "data_index": index + 1,
        "request": request,
        "response": answered(vendor) if is_answered else {"error": "no"},
        "status": "success" if is_answered else "failed",
        "finish_reason": vendor.finish or None,
        "tool_calls_valid": vendor.fits if noted and vendor.finish == "tool_calls" else None,
        "last_run_at": "2025-11-15T10:00:00",
        "duration_ms": 10,
        "hash": "0",
    }


def test_our_own_battery_is_sound() -> None:
    cases = shipped_cases()
    assert len({case.id for case in cases}) == len(cases) >= 20
    assert {case.battery for case in cases} == set(BATTERIES)
    assert {case.metric for case in cases} <= set(METRICS)
    for case in cases:
        declared = {tool["function"]["name"] for tool in case.body.get("tools", ())}
        assert {call.name for call in case.calls} <= declared, case.id


def test_k2vv_requests() -> None:
    """One whole request body per line, as the verifier's samples are."""
    body: dict[str, Any] = {
        "model": "kimi-k2",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [TOOL],
        "stream": True,
        "temperature": 0.6,
    }
    first, second = read_cases(lines(body, {**body, "stream": False}))
    assert (first.source, first.modes, second.modes) == ("k2vv", ("stream",), ("whole",))
    assert first.body == {"messages": body["messages"], "tools": [TOOL], "temperature": 0.6}
    assert second.id == f"{first.id}.2"
    assert first.id == read_cases(lines(body))[0].id
    (other,) = read_cases(lines({**body, "temperature": 1.0, "max_tokens": 64000, "model": "vendor"}))
    assert other.id == first.id
    (system,) = read_cases(lines({**body, "messages": [{"role": "_input", "content": "Be brief."}, *body["messages"]]}))
    assert system.body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_minimax() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]}
    call, none, unsaid = read_cases(
        lines(
            {**body, "check_type": ["tool_calls"], "expected_tool_call": True, "stream": True},
            {**body, "expected_tool_call": False},
            {**body, "check_type": ["tool_calls"]},
        )
    )
    assert [case.expects for case in (call, none, unsaid)] == ["call", "no_call", "any"]
    assert [case.metric for case in (call, none, unsaid)] == ["trigger", "restraint", "reference"]
    assert [case.modes for case in (call, none)] == [("stream",), ("whole",)]
    assert set(call.body) == {"messages", "tools"}


def test_minimax_conversations_are_sent_as_the_verifier_sends_them() -> None:
    """Its samples call every call of a tool by the same id, and keep reasoning under other names."""

    def asked(number: int) -> list[dict[str, Any]]:
        call = {"id": "Bash:0", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
        details = [{"type": "reasoning.text", "text": f"think {number}"}, {"type": "reasoning.text", "text": "more"}]
        return [
            {"role": "assistant", "content": "", "tool_calls": [call, call], "reasoning": "x", "reasoning_detail": details},
            {"role": "tool", "content": f"first {number}", "name": "Bash", "tool_call_id": "Bash:0"},
            {"role": "tool", "content": f"second {number}", "name": "Bash", "tool_call_id": "Bash:0"},
        ]

    (case,) = read_cases(lines({"messages": [*asked(1), *asked(2)], "check_type": ["tool_calls"]}))
    messages = case.body["messages"]
    assert [call["id"] for message in messages for call in message.get("tool_calls", ())] == [
        "Bash:0",
        "Bash:1",
        "Bash:2",
        "Bash:3",
    ]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == [
        "Bash:0",
        "Bash:1",
        "Bash:2",
        "Bash:3",
    ]
    assert messages[0]["reasoning_content"] == "think 1\nmore"
    assert not {"reasoning", "reasoning_detail"} & set(messages[0])


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ("contains_russian_characters_unicode", "\u304a\u5e74\u7389", "お年玉 это"),
        ("repeat_n_gram", "abc abc abc", "abc abc abc abc"),
        ("silence_output", "[SILENCE]", "[SILENCE] and more"),
        ("scenario_check", "first city, then days", "days, then city"),
    ],
)
def test_minimax_text_checks(check: str, good: str, bad: str) -> None:
    parameters = {"type": "object", "properties": {"city": {}, "days": {}, "unit": {}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    row = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool], "check_type": [check], "stream": True}
    (case,) = read_cases(lines(row))
    assert case.metric == "text_checks"
    assert set(case.body) == {"messages", "tools"}
    for text, passes in ((good, True), (bad, False)):
        side = Side(outcome=AnswerOutcome(has_text=True), text=text, finish="stop")
        assert judge(case, "stream", side)["text_checks"] is passes


def test_bfcl_with_its_answers() -> None:
    function = {
        "name": "math.factorial",
        "description": "n!",
        "parameters": {
            "type": "dict",
            "properties": {
                "n": {"type": "integer"}, "x": {"type": "float"}, "type": {"type": "string"}, "y": {"type": "any"},
                "body": {"type": "dict", "properties": {"mode": {"type": "string"}}},
                "many": {"type": "array", "items": {"type": "dict", "properties": {"a": {"type": "boolean"}}}},
            },
            "required": ["n"],
        },
    }  # fmt: skip
    row = {"id": "simple_python_1", "question": [[{"role": "user", "content": "5!"}]], "function": [function]}
    allowed: dict[str, list[Any]] = {
        "n": [5], "x": ["", 1.0], "type": ["Plus, a", ""], "body": ["", {"mode": ["AIR_CLEAN"], "wind": ["HIGH", ""]}],
        "many": ["", [{"a": [True]}]],
    }  # fmt: skip
    answers = lines({"id": "simple_python_1", "ground_truth": [{"math.factorial": allowed}]})
    (case,) = read_cases(lines(row), answers=answers)
    assert (case.id, case.metric, case.expects) == ("bfcl-simple_python_1", "trigger", "call")
    assert case.calls == (ExpectedCall("math_factorial", allowed=allowed, loosely=True),)
    declared = case.body["tools"][0]["function"]
    assert declared["name"] == "math_factorial"
    properties = declared["parameters"]["properties"]
    assert declared["parameters"]["type"] == "object"
    assert (properties["x"], properties["type"], properties["y"]) == (
        {"type": "number"},
        {"type": "string"},
        {"type": "string"},
    )
    assert properties["many"]["items"]["type"] == properties["body"]["type"] == "object"
    for arguments, fits in (
        ('{"n": 5}', True),
        ('{"n": 5, "x": 1}', True),
        ('{"n": 5, "type": "PLUS A."}', True),
        ('{"n": 5, "body": {"mode": "air-clean"}}', True),
        ('{"n": 5, "many": [{"a": true}]}', True),
        ('{"n": 6}', False),
        ('{"n": true}', False),
        ('{"x": 1.0}', False),
        ('{"n": 5, "z": 1}', False),
        ('{"n": 5, "body": {"mode": "AIR_CLEAN", "wind": "LOW"}}', False),
        ('{"n": 5, "body": {"wind": "HIGH"}}', False),
        ('{"n": 5, "many": [{"a": 1}]}', False),
        ('{"n": 5, "many": []}', False),
    ):
        side = Side(outcome=AnswerOutcome(calls=1), calls=(SeenCall("math_factorial", arguments),), finish="tool_calls")
        assert judge(case, "whole", side)["trigger"] is fits, arguments


def test_bfcl_relevance_languages_and_what_it_simulates() -> None:
    function = {"name": "f", "parameters": {"type": "dict", "properties": {"m": {"type": "HashMap", "description": "d"}}}}
    row = {"id": "irrelevance_3", "question": [[{"role": "user", "content": "?"}]], "function": [function]}
    none, some = read_cases(lines(row, {**row, "id": "live_relevance_3-3-0"}))
    assert (none.expects, none.metric) == ("no_call", "restraint")
    assert (some.expects, some.metric, some.calls) == ("call", "trigger", ())
    truth = lines({"id": "simple_java_0", "ground_truth": [{"f": {"m": ["new HashMap<>()"]}}]})
    (java,) = read_cases(lines({**row, "id": "simple_java_0"}), answers=truth)
    assert java.calls == (ExpectedCall("f"),)
    described = java.body["tools"][0]["function"]["parameters"]["properties"]["m"]
    assert described == {"type": "string", "description": "d A value of Java's type HashMap, as text."}
    turns = {"id": "multi_turn_base_0", "question": [[{"role": "user", "content": "a"}]], "involved_classes": ["TwitterAPI"]}
    with pytest.raises(InvalidRequest, match="several turns with BFCL's own simulators"):
        read_cases(lines(turns))
    with pytest.raises(InvalidRequest, match="another category of BFCL"):
        read_cases(lines(row), answers=lines({"id": "other", "ground_truth": []}))
    with pytest.raises(InvalidRequest, match="line 1 of the answers"):
        read_cases(lines(row), answers=lines({"id": "other"}))


def test_walle_schemas() -> None:
    """Lines of walle's own `valid.jsonl` are schemas, an empty one among them; Kimi-Vendor-Verifier adds suite and line."""
    plain = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    referring = {"$defs": {"T": {"type": "string"}}, "anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}
    listed = {"suite": "TestAnyOf", "line": 4, "selection_reason": "anyOf_parameter_schema", "schema": plain}
    cases = read_cases(lines(plain, {}, referring, listed, plain, {"name": "s3", "json_schema": {"schema": {"type": "array"}}}))
    assert [case.metric for case in cases] == ["tool_choice"] * 6
    assert len({case.id for case in cases}) == 6
    assert cases[3].id == "walle-TestAnyOf-4"
    assert cases[0].modes == ("whole", "stream")
    parameters = [case.body["tools"][0]["function"]["parameters"] for case in cases]
    assert parameters[0] == plain
    assert parameters[1]["properties"] == {"value": {}}
    assert parameters[2]["$defs"] == referring["$defs"]
    assert parameters[2]["properties"]["value"] == {"anyOf": referring["anyOf"]}
    assert parameters[5]["properties"] == {"value": {"type": "array"}}
    assert detect(plain) == "walle"
    with pytest.raises(InvalidRequest, match="walle's own validator must refuse"):
        read_cases(lines({"schema": '{"type": []}', "expect": "type array cannot be empty", "unmarshal": False}))


def test_what_is_no_case_is_named_by_its_line() -> None:
    for text, word in (
        ("", "no cases"),
        ("[1]\n", "line 1"),
        (lines({"question": 3, "function": 4}), "bfcl"),
        (lines({"a": 1}), "walle"),
    ):
        with pytest.raises(InvalidRequest, match=word):
            read_cases(text)


def k2vv_line(index: int, finish: str, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    """A line of K2VV's results, as it writes them."""
    message: dict[str, Any] = {"role": "assistant", "content": "x"}
    if arguments is not None:
        message["tool_calls"] = [{"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]
    response = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return {
        "data_index": index,
        "request": {"model": "kimi-k2", "messages": [{"role": "user", "content": f"{index}"}], "tools": [TOOL]},
        "response": response,
        "status": "success",
        "finish_reason": finish,
        **more,
    }


def test_k2vvs_two_figures() -> None:
    """Its definition, worked by hand: TP 3, FP 1, FN 3, the failed request among them; of the four answers that ended in calls
    three fit their schemas."""
    good, bad = '{"city": "Rome"}', '{"town": "Rome"}'
    vendor = [
        k2vv_line(1, "tool_calls", good),
        k2vv_line(2, "tool_calls", good),
        k2vv_line(3, "tool_calls", bad),
        k2vv_line(4, "tool_calls", good),
        k2vv_line(5, "stop"),
        k2vv_line(6, "stop"),
        k2vv_line(7, "stop"),
        k2vv_line(8, "stop", status="failed"),
    ]
    official = [
        k2vv_line(index, "tool_calls" if index in (1, 2, 3, 5, 6, 8) else "stop", good if index < 4 else None)
        for index in range(1, 9)
    ]
    figures = vendor_figures(read_results(lines(*vendor)), read_results(lines(*official)))
    assert (figures.true_positive, figures.false_positive, figures.false_negative) == (3, 1, 3)
    assert figures.compared == 8
    precision, recall = 3 / 4, 3 / 6
    assert figures.tool_call_f1 == pytest.approx(2 * precision * recall / (precision + recall), abs=0.01)
    assert figures.schema_accuracy == pytest.approx(3 / 4, abs=0.01)
    noted = read_results(lines({**k2vv_line(9, "tool_calls"), "tool_calls_valid": True}))
    assert noted[0].valid
    again = [
        {**k2vv_line(9, finish), "last_run_at": at} for finish, at in (("stop", "2"), ("tool_calls", "3"), ("length", "1"))
    ]
    assert [result.finish for result in read_results(lines(*again))] == ["tool_calls"]
    with pytest.raises(InvalidRequest, match="line 1"):
        read_results("{}\n")

"""Checkpoints that declare the form of their answers themselves: read as they are, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import athena
from athena.errors import CannotLearn
from athena.learning.response_templates import declared_response, parts
from athena.shells.templates.learn import learn_format

FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}


def template(calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"version": 1, "start_anchor": "<|bot|>", "fields": {"content": {"close": "<|end|>"}, "tool_calls": calls, **fields}}


def object_calls(text: str, declared: dict[str, Any], **options: Any) -> list[tuple[str, Any]]:
    found = athena.parse(text, format=declared_response(declared, "acme"), **options)
    assert not found.errors
    return [(call.name, json.loads(call.arguments)) for call in found.calls]


WEATHER = [
    {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    }
]

DECLARED = {
    "json in tags": (
        template(
            {
                "open": "<call>",
                "close": "</call>",
                "content": "json",
                "repeats": True,
                "transform": {"type": "function", "function": "{content}"},
            }
        ),
        'Hi <call>{"name": "weather", "arguments": {"city": "Rome", "days": 2}}</call>',
    ),
    "json under other keys": (
        template(
            {
                "open": "<|acts|>",
                "close": "<|/acts|>",
                "content": "json",
                "transform_each": True,
                "transform": {"type": "function", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
            }
        ),
        'Hi <|acts|>[{"tool_name": "weather", "parameters": {"city": "Rome", "days": 2}}]<|/acts|>',
    ),
    "a head": (
        template(
            {
                "open_pattern": r"<\|fn\|>(?P<name>\w+)<\|args\|>",
                "close": "<|nf|>",
                "content": "json",
                "repeats": True,
                "transform": FUNCTION,
            }
        ),
        'Hi <|fn|>weather<|args|>{"city": "Rome", "days": 2}<|nf|>',
    ),
    "tags": (
        template(
            {
                "open_pattern": r"<do=(?P<name>[^>]+)>\s*",
                "close": "</do>",
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<p=(?P<key>[^>]+)>(?P<value>.*?)</p>",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "repeats": True,
                "transform": FUNCTION,
            }
        ),
        "Hi <do=weather>\n<p=city>Rome</p>\n<p=days>2</p>\n</do>",
    ),
    "quoting tokens": (
        template(
            {
                "open_pattern": r"<\|tc>call:(?P<name>\w+)",
                "close": "<tc|>",
                "content": "json",
                "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
                "repeats": True,
                "transform": FUNCTION,
            }
        ),
        'Hi <|tc>call:weather{city:<|"|>Rome<|"|>,days:2}<tc|>',
    ),
    "the older form, json": (
        {
            "type": "object",
            "properties": {
                "thinking": {"type": "string", "x-regex": r"<muse>(.*?)<\/muse>"},
                "tool_calls": {
                    "type": "array",
                    "x-regex-iterator": "<call>(.*?)</call>",
                    "items": {"x-parser": "json", "x-parser-args": {"transform": "{type: 'function', function: @}"}},
                },
            },
        },
        'Hi <call>{"name": "weather", "arguments": {"city": "Rome", "days": 2}}</call>',
    ),
    "the older form, keys and values": (
        {
            "type": "object",
            "properties": {
                "tool_calls": {
                    "type": "array",
                    "x-regex-iterator": r"<tc>\s*(.+?)\s*</tc>",
                    "items": {
                        "properties": {
                            "function": {
                                "properties": {
                                    "name": {"type": "string", "x-regex": r"^(\S+)"},
                                    "arguments": {"x-regex-key-value": r"<k>(?P<key>[^<]+)</k>\s*\n<v>(?P<value>.*?)</v>"},
                                }
                            }
                        }
                    },
                }
            },
        },
        "Hi <tc>weather\n<k>city</k>\n<v>Rome</v>\n<k>days</k>\n<v>2</v>\n</tc>",
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_reads_a_declared_form(name: str) -> None:
    declared, text = DECLARED[name]
    assert object_calls(text, declared, tools=WEATHER) == [("weather", {"city": "Rome", "days": 2})]
    assert (
        object_calls(text + "\n" + text.removeprefix("Hi "), declared, tools=WEATHER)
        == [("weather", {"city": "Rome", "days": 2})] * 2
    )


def test_takes_reasoning_and_answers_from_the_declaration() -> None:
    calls = DECLARED["a head"][0]["fields"]["tool_calls"]
    declared = template(
        calls, thinking={"open": "<muse>", "close": "</muse>"}, content={"open": ["<|say|>"], "close": ["<|/say|>", "<|end|>"]}
    )
    description = declared_response(declared, "acme")
    assert description.thinking == (("<muse>", "</muse>"),)
    assert description.answer == (("<|say|>", "<|/say|>"),)
    assert description.reserved
    found = athena.parse("<muse>hm</muse><|say|>Hi<|/say|>", format=description)
    assert (found.thinking, found.text) == ("hm", "Hi")


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"version": 1, "fields": {"content": {}}}, "no field tool_calls"),
        (template({"content": "json"}), "has no open"),
        (template({"open": "<c>", "close": "</c>", "content": "kv-lines"}), "'kv-lines', which is not read"),
        (template({"open_pattern": "<c>(?:a|b)", "close": "</c>", "content": "json"}), "more than markers with groups"),
        (template({"open": "<c>", "close": "</c>", "content": "xml-inline"}), "names no group for the tool's name"),
        (template({"open_pattern": "<c>(?P<colour>x)", "close": "</c>", "content": "json"}), "'colour' is neither"),
        (template({"open": "now", "close": "</c>", "content": "json"}), "too ordinary"),
        ({"type": "object", "properties": {}}, "x-regex-iterator"),
    ],
)
def test_refuses_what_it_cannot_read(declared: dict[str, Any], reason: str) -> None:
    with pytest.raises(CannotLearn, match=reason):
        declared_response(declared, "acme")


def test_a_pattern_is_taken_apart() -> None:
    assert [tuple(part) for part in parts(r"<\|a\|>(?P<name>[^(]+\))\s*\n<b>")] == [
        ("<|a|>", ""),
        ("", "name"),
        ("\n\n<b>", ""),
    ]


def test_the_declaration_of_a_checkpoint_wins_over_its_template(tmp_path: Path) -> None:
    config = {"chat_template": "{% broken", "eos_token": {"content": "<|end|>"}, "response_template": DECLARED["a head"][0]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    learnt = learn_format(tmp_path, name="acme")
    assert learnt.call.begin == "<|fn|>"
    assert "response_template" in learnt.about


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("<|bot|><think>\n", True),
        ("<|bot|>", False),
        ("<|bot|><think></think>", False),
        ("{% if enable_thinking %}<think>{% endif %}", False),
        ("{{ messages.nothing.there }}", False),
    ],
)
def test_the_prompt_of_a_declaring_checkpoint_may_open_the_reasoning(tmp_path: Path, prompt: str, opens: bool) -> None:
    source = (
        "{% for message in messages %}{{ message.content }}{% endfor %}{% if add_generation_prompt %}" + prompt + "{% endif %}"
    )
    (tmp_path / "chat_template.jinja").write_text(source)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"response_template": DECLARED["a head"][0]}))
    learnt = learn_format(tmp_path, name="acme")
    assert learnt.starts_in_thinking is opens
    found = athena.parse(
        'I look.</think>Hi <|fn|>weather<|args|>{"city": "Rome", "days": 2}<|nf|>', format=learnt, tools=WEATHER
    )
    assert (found.thinking, found.text) == (("I look.", "Hi ") if opens else ("", "I look.Hi "))

"""Markers that several formats share: what follows them decides whose they are (formats.md section 3)."""

from __future__ import annotations

import msgspec
import pytest

from athena.formats.machine.engine import TextParser
from athena.model.events import TextDelta, ToolCallComplete
from formats.case_files import TOOLS, chunked

_JSON = '{"name": "get_time", "arguments": {"tz": "UTC"}}'

_TEXTS = [
    (f"<tool_call>\n{_JSON}\n</tool_call>", "hermes"),
    (f"<tool_call>[{_JSON}]", "hermes"),
    ("<tool_call>\n<function=get_time>\n<parameter=tz>\nUTC\n</parameter>\n</function>\n</tool_call>", "qwen_xml"),
    ("<tool_call>get_time\n<arg_key>tz</arg_key>\n<arg_value>UTC</arg_value>\n</tool_call>", "glm_xml"),
    (f"<tool_calls>[{_JSON}]</tool_calls>", "tool_calls_array"),
    (f"<tool_calls>\n{_JSON}\n</tool_calls>", "minimax_m1"),
    (f"<|tool_call|>[{_JSON}]", "granite3"),
    (f"<|tool_call|>[{_JSON}]<|/tool_call|>", "granite3"),
    ('<function=get_time>{"tz": "UTC"}</function>', "llama_function_tag"),
    ("<function=get_time>\n<parameter=tz>\nUTC\n</parameter>\n</function>", "qwen_xml"),
    (f"[TOOL_CALLS] [{_JSON}]", "mistral_json"),
    (f"[TOOL_CALLS]{_JSON}", "mistral_json"),
    ('[TOOL_CALLS]get_time[ARGS]{"tz": "UTC"}', "mistral_args"),
    ('[TOOL_CALLS]get_time{"tz": "UTC"}', "mistral_args"),
    (f"<|python_tag|>{_JSON}", "llama3_json"),
    (f"functools[{_JSON}]", "phi4_mini"),
    (f"<TOOLCALL>[{_JSON}]</TOOLCALL>", "nemotron_toolcall"),
    (f"<function_call> {_JSON}", "granite_20b"),
    (f"<|START_ACTION|>[{_JSON}]<|END_ACTION|>", "cohere_action"),
]


@pytest.mark.parametrize(("text", "format_id"), _TEXTS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_follows_decides(text: str, format_id: str, size: int) -> None:
    parser = TextParser("auto", tools=TOOLS)
    events = [event for chunk in chunked(text, size) for event in parser.feed(chunk)] + parser.close()
    calls = [(event.name, msgspec.json.decode(event.arguments)) for event in events if isinstance(event, ToolCallComplete)]
    assert calls == [("get_time", {"tz": "UTC"})]
    assert not [event for event in events if isinstance(event, TextDelta)]
    assert parser.format == format_id


@pytest.mark.parametrize(("text", "format_id"), _TEXTS)
def test_a_named_format_leaves_the_others_readable(text: str, format_id: str) -> None:
    """Whatever format is named, with `recognise_others` a call in another's markers is still found."""
    for named in ("kimi_k2", "hermes", "qwen_xml", "glm_xml", "mistral_args", "mistral_json", "granite3", "llama3_json"):
        parser = TextParser(named, tools=TOOLS, recognise_others=True)
        events = parser.feed(text) + parser.close()
        assert [event.name for event in events if isinstance(event, ToolCallComplete)] == ["get_time"], named


@pytest.mark.parametrize("marker", ["<tool_call>", "<tool_calls>", "<|tool_call|>", "[TOOL_CALLS]", "<function=", "<TOOLCALL>"])
def test_a_marker_alone_is_text(marker: str) -> None:
    parser = TextParser("auto", tools=TOOLS)
    text = f"The marker {marker} is written before calls, and nothing follows it here but words and more words."
    events = parser.feed(text) + parser.close()
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text

"""The names that the library's functions take, as types, so that editors offer them.

The functions take any other string as well, since a program may compute the name, and refuse unknown ones at once.
"""

from __future__ import annotations

from typing import Literal

DialectName = Literal["anthropic_messages", "openai_chat", "openai_responses", "gemini"]
"""An API, as its id."""

FormatName = Literal[
    "auto", "standard", "kimi", "qwen", "deepseek", "apertus", "atem", "beam", "cohere_action", "cohere_r",
    "deepseek_dsml", "deepseek_v3", "deepseek_v31", "dots", "element_xml", "ernie45", "functionary_v2",
    "functionary_v3", "functiongemma", "gemma4", "gigachat3", "glm4_legacy", "glm_xml", "granite3", "granite_20b",
    "harmony", "hermes", "hunyuan_xml", "ifm", "inkling", "internlm", "invoke_xml", "invoke_xml_legacy", "json_generic",
    "kimi_k2", "kimi_k3", "lfm2", "llama3_json", "llama_function_tag", "longcat", "minicpm5", "minimax_m1",
    "minimax_m2", "minimax_m3", "mistral_args", "mistral_json", "nemotron_toolcall", "olmo3", "phi4_mini", "plamo3",
    "pythonic", "qwen_agent", "qwen_xml", "react", "sarashina", "seed_oss", "solar_open", "solar_open2", "step3",
    "tool_calls_array", "xlam",
]  # fmt: skip
"""A text format, as its id: `auto` finds it, `standard` means native calls only, and three are short names of others. A test
compares the list with the registry."""

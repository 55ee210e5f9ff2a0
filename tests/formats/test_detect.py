"""Formats from model ids: a table of ids, and the rule that the longest pattern wins."""

from __future__ import annotations

import tomllib

import pytest

from athena.errors import UsageError
from athena.formats import ALIASES, format_names, get_format
from athena.formats.machine.detect import detect_format, family_of, model_table
from formats.case_files import FOLDER


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("moonshot/kimi-k2", "kimi"),
        ("kimi-k2-instruct", "kimi"),
        ("KIMI-K2", "kimi"),
        ("qwen/qwen3-coder", "qwen"),
        ("qwen3-coder-plus", "qwen"),
        ("qwen-deepseek-mix", "qwen"),
        ("deepseek/deepseek-chat", "deepseek"),
        ("deepseek-r1", "deepseek"),
        ("DeepSeek-V3", "deepseek"),
        ("claude-3-opus", "standard"),
        ("gpt-4", "standard"),
        ("unknown/model", "standard"),
        ("", "standard"),
        ("moonshotai/kimi-k2-0905", "kimi"),
        ("moonshotai/kimi-k2-0905:free", "kimi"),
        ("llm360/k2-think", "standard"),
        ("router/moonshotai/some-qwen", "qwen"),
        ("moonshotai/anything", "kimi"),
    ],
)
def test_families(model: str, family: str) -> None:
    found = detect_format(model)
    assert (found if found == "standard" else family_of(found)) == family


@pytest.mark.parametrize(
    ("model", "format_id"),
    [
        ("moonshotai/Kimi-K2-Thinking", "kimi_k2"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v31"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek_dsml"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek_v31"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"),
        ("deepseek/deepseek-r1-distill-qwen-32b", "deepseek_v3"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen_xml"),
        ("Qwen/Qwen3.5-4B", "qwen_xml"),
        ("Qwen/Qwen2.5-72B-Instruct", "hermes"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B", "qwen_xml"),
        ("z-ai/glm-4.6", "glm_xml"),
        ("openai/gpt-oss-120b", "harmony"),
        ("beam-1", "beam"),
        ("mistralai/Devstral-Small-2507", "mistral_args"),
        ("internlm/internlm2_5-7b-chat", "internlm"),
        ("internlm/internlm3-8b-instruct", "internlm"),
        ("internlm/Intern-S1", "internlm"),
        ("swiss-ai/Apertus-8B-Instruct-2509", "apertus"),
        ("THUDM/glm-4-9b-chat", "glm4_legacy"),
        ("THUDM/GLM-4-32B-0414", "glm4_legacy"),
        ("meetkai/functionary-medium-v3.0", "functionary_v3"),
        ("meetkai/functionary-small-v3.2", "functionary_v3"),
        ("meetkai/functionary-small-v2.5", "functionary_v2"),
        ("meetkai/functionary-7b-v2.1", "functionary_v2"),
        ("ai-sage/GigaChat3-10B-A1.8B", "gigachat3"),
        ("ai-sage/GigaChat3.1-702B", "gigachat3"),
        ("ai-sage/GigaChat3.5", "deepseek_dsml"),
        ("thinkingmachines/Inkling-Small", "inkling"),
        ("upstage/Solar-Open-100B", "solar_open"),
        ("pfnet/plamo-3.0-prime-beta", "plamo3"),
        ("sbintuitions/sarashina2.2-3b-instruct-v0.1", "sarashina"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral_args"),
        ("mistralai/mistral-small-3.1-24b-instruct", "mistral_json"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral_json"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3_json"),
        ("meta-llama/Llama-3.2-3B-Instruct", "llama3_json"),
        # SGLang 0.5.23 and the models' own pages.
        ("meta-llama/Llama-3.2-1B-Instruct", "llama3_json"),
        ("deepreinforce-ai/Ornith-1.0-9B", "qwen_xml"),
        ("inclusionAI/Ling-1T", "hermes"),
        ("inclusionAI/Ring-flash-2.0", "hermes"),
        ("inclusionAI/Ring-2.6-1T", "glm_xml"),
        ("inclusionAI/Ling-3.0-flash", "glm_xml"),
        ("iflytek/Spark2.5", "glm_xml"),
        ("IQuestLab/IQuest-Q1", "glm_xml"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
        ("Team-ACE/ToolACE-2-Llama-3.1-8B", "pythonic"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", "nemotron_toolcall"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama3_json"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron_toolcall"),
        ("Salesforce/Llama-xLAM-2-8b-fc-r", "xlam"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite3"),
        ("ibm-granite/granite-4.0-h-small", "hermes"),
        ("ibm-granite/granite-20b-functioncalling", "granite_20b"),
        ("microsoft/Phi-4-mini-instruct", "phi4_mini"),
        ("cohere/command-r7b-12-2024", "cohere_action"),
        ("CohereLabs/c4ai-command-a-03-2025", "cohere_action"),
        ("cohere/command-r-plus-08-2024", "cohere_r"),
        ("ai21/jamba-large-1.7", "tool_calls_array"),
        ("MiniMaxAI/MiniMax-M1-80k", "minimax_m1"),
        ("baidu/ERNIE-4.5-21B-A3B-Thinking", "ernie45"),
        ("meetkai/functionary-small-v3.1", "llama_function_tag"),
    ],
)
def test_formats(model: str, format_id: str) -> None:
    assert detect_format(model) == format_id


def test_overrides_come_first() -> None:
    assert detect_format("my-model", {"my-model": "kimi"}) == "kimi_k2"
    assert detect_format("moonshotai/kimi-k2", {"moonshotai/kimi-k2": "standard"}) == "standard"


def test_aliases_and_unknown_names() -> None:
    assert get_format("deepseek").id == "deepseek_v3"
    with pytest.raises(UsageError, match="unknown format"):
        get_format("nonsense")


def test_every_pattern_finds_its_own_format() -> None:
    for format_id, patterns in model_table().formats.items():
        for pattern in patterns:
            model = pattern.replace("*", "")
            found = detect_format(model)
            assert found == format_id, f"{model} is detected as {found}, not {format_id}"


def test_every_row_has_a_source_and_a_format() -> None:
    table = model_table()
    assert set(table.formats) <= set(format_names())
    for format_id, patterns in table.formats.items():
        for pattern, source in patterns.items():
            assert pattern == pattern.lower()
            assert pattern.strip("*"), pattern
            for one in source.split("; "):
                name, _, what = one.partition(": ")
                assert name in table.sources, f"{format_id}, {pattern}: {source}"
                assert what.strip(), f"{format_id}, {pattern}: the source says nothing"
    unused = set(table.sources) - {
        one.partition(":")[0] for rows in table.formats.values() for s in rows.values() for one in s.split("; ")
    }
    assert not unused


def test_families_are_the_aliases() -> None:
    families = model_table().families
    assert {family: formats[0] for family, formats in families.items()} == ALIASES
    assert all(format_id in model_table().formats for formats in families.values() for format_id in formats)


@pytest.mark.parametrize(
    ("model", "format_id"),
    [
        ("PrimeIntellect/INTELLECT-3", "qwen_xml"),
        ("NousResearch/Hermes-2-Theta-Llama-3-8B", "hermes"),
        ("swiss-ai/Apertus-1.5-8B", "apertus"),
        ("zai-org/GLM-5.2", "glm_xml"),
        ("tencent/Hy4", "hunyuan_xml"),
        ("upstage/Solar-Open2-250B", "solar_open2"),
    ],
)
def test_names_of_the_newest_lists(model: str, format_id: str) -> None:
    assert detect_format(model) == format_id


def test_published_names() -> None:
    """Of every format that any model is known for."""
    names: dict[str, list[str]] = tomllib.loads((FOLDER.parent / "model_names.toml").read_text(encoding="utf-8"))
    assert set(names) == set(model_table().formats)
    wrong = [(model, detect_format(model), wanted) for wanted, models in names.items() for model in models]
    assert [row for row in wrong if row[1] != row[2]] == []

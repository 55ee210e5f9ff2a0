"""The learnt format of a public template equals the shipped one of its model.

The templates are not part of this project: ATHENA_TEMPLATES names a folder of them, such as `models/templates` of llama.cpp,
which the source package of llama-cpp-python holds under vendor/llama.cpp. Without it there is nothing to compare.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from athena.errors import CannotLearn
from athena.formats import get_format
from athena.formats.declared.build import declared_format
from athena.formats.machine.recognizer import Recognizer
from athena.learning.infer import LearntFormat, infer
from athena.learning.probes import ProbeCall, Render, RenderFailed
from athena.learning.verify import HARD, Reading, answer_text, book_of, chunkings, opened_before, read, samples, verify
from athena.shells.templates.rendering import TemplateProcess

FOLDER = os.environ.get("ATHENA_TEMPLATES", "")
LEAST = 40

SHIPPED = {
    "Apertus-8B-Instruct": "apertus",
    "Apriel-1.6-15b-Thinker-fixed": "tool_calls_array",
    "Bielik-11B-v3.0-Instruct": "hermes",
    "ByteDance-Seed-OSS": "seed_oss",
    "Cohere2MoE": "cohere_action",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "cohere_action",
    "GLM-4.6": "glm_xml",
    "GLM-4.7-Flash": "glm_xml",
    "GigaChat3-10B-A1.8B": "gigachat3",
    "GigaChat3.1-10B-A1.8B": "gigachat3",
    "Kimi-K3": "kimi_k3",
    "LFM2.5-8B-A1B": "lfm2",
    "MiMo-VL": "hermes",
    "MiniMax-M1": "minimax_m1",
    "MiniMax-M2": "minimax_m2",
    "MiniMax-M3": "minimax_m3",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral_args",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen_xml",
    "NVIDIA-Nemotron-Nano-v2": "nemotron_toolcall",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen3-Coder": "qwen_xml",
    "Qwen3.5-4B": "qwen_xml",
    "Reka-Edge": "hermes",
    "Spark2.5": "glm_xml",
    "StepFun3.5-Flash": "qwen_xml",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek_v3",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek_v3",
    "deepseek-ai-DeepSeek-V3.1": "deepseek_v31",
    "deepseek-ai-DeepSeek-V3.2": "deepseek_dsml",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek_dsml",
    "deepseek-ai-DeepSeek-V4": "deepseek_dsml",
    "google-gemma-4-31B-it-interleaved": "gemma4",
    "google-gemma-4-31B-it": "gemma4",
    "ibm-granite-granite-4.0": "hermes",
    "ibm-granite-granite-4.1": "hermes",
    "inclusionai-ling-3.0-flash": "glm_xml",
    "meetkai-functionary-medium-v3.1": "llama_function_tag",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3_json",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3_json",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3_json",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral_args",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral_json",
    "moonshotai-Kimi-K2": "kimi_k2",
    "openbmb-MiniCPM5-1B": "minicpm5",
    "poolside-Laguna-S-2.1": "glm_xml",
    "poolside-Laguna-XS-2.1": "glm_xml",
    "poolside-Laguna-XS.2": "glm_xml",
    "tencent-Hy3": "hunyuan_xml",
    "unsloth-Apriel-1.5": "tool_calls_array",
    "unsloth-mistral-Devstral-Small-2507": "mistral_args",
    "upstage-Solar-Open-100B": "solar_open",
}

pytestmark = pytest.mark.skipif(not FOLDER, reason="ATHENA_TEMPLATES names no folder of public chat templates")


@pytest.mark.parametrize("name", SHIPPED if FOLDER else ("no folder is named",))
def test_the_learnt_format_reads_as_the_shipped_one_does(name: str) -> None:
    file = Path(FOLDER) / f"{name}.jinja"
    if not file.is_file():
        pytest.skip(f"the folder holds no {file.name}")
    with TemplateProcess(file.read_text(encoding="utf-8"), {"bos_token": "<s>", "eos_token": "</s>"}) as process:
        learnt = infer(process.render, "learnt")
        verify(process.render, learnt)
        compare(process.render, learnt, SHIPPED[name])


def compare(render: Render, learnt: LearntFormat, shipped_id: str) -> None:
    learnt_one, shipped = Recognizer(declared_format(learnt.description)), Recognizer(get_format(shipped_id))
    hard = [((ProbeCall("look_up", arguments),), None, None) for _, arguments in HARD]
    for calls, content, reasoning in (*samples(learnt.parallel), *hard):
        try:
            text = answer_text(render, learnt, calls, content, reasoning)
        except RenderFailed:
            continue
        if text is None:
            continue
        for end in learnt.description.turn_ends:
            # A server cuts off what ends a turn, and shipped formats know only the ends of their own models.
            text = text.rstrip().removesuffix(end)
        opened, book = opened_before(learnt, text), book_of(calls)
        expected = comparable(read((text,), shipped, book, opened=opened))
        for pieces in ([text], *chunkings(text, every_cut=len(calls) == 1 and content is None)):
            assert comparable(read(pieces, learnt_one, book, opened=opened)) == expected


def comparable(reading: Reading) -> Reading:
    """Without the white space beside calls, and without ids, which are made where the text has none."""
    return reading._replace(text=reading.text.strip(), thinking=reading.thinking.strip(), ids=())


def test_most_public_templates_can_be_learnt() -> None:
    learnt: list[str] = []
    refused: dict[str, str] = {}
    for file in sorted(Path(FOLDER).glob("*.jinja")):
        with TemplateProcess(file.read_text(encoding="utf-8"), {"bos_token": "<s>", "eos_token": "</s>"}) as process:
            try:
                verify(process.render, infer(process.render, "learnt"))
                learnt.append(file.stem)
            except CannotLearn as error:
                refused[file.stem] = error.message
    assert len(learnt) >= LEAST, refused
    assert all(refused.values())

"""The examples do what they say, offline, and on an upstream that the environment names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from support.athena_process import environment, run_program
from support.leaking_upstream import FORMS, LeakingUpstream

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".mjs"))
NUMBERED = sorted(path.name for path in EXAMPLES.glob("[0-9]*.py"))

SDKS = ("anthropic", "athena", "athena.transport", "google.genai", "httpx2", "openai")
WEATHER = r"get_weather \{['\"]city['\"]: ?['\"]Tokyo['\"]\}"
ANSWER = "The tool says: sunny, 21 °C in Tokyo"

SAYS: dict[str, list[str]] = {
    "01_parse_text.py": [
        "Kimi: format kimi_k2",
        "  text      Let me look.",
        f"  call      {WEATHER}",
        "Hermes: format hermes",
        "  thinking  The user wants the weather.",
        f"  call      {WEATHER}",
        "Qwen3-Coder: format qwen_xml",
        f"  call      {WEATHER}",
        "DeepSeek: format deepseek_v3",
        f"  call      {WEATHER}",
        "cut off: format auto",
        "  no call   truncated_call: the answer ended inside a call of get_weather",
        "only prose: format auto",
        "  text      Models of Hermes write `<tool_call>` before a call.",
    ],
    "02_stream_text.py": [
        "  text       'it up. '",
        "  call       get_weather",
        "  arguments  .*",
        r'  complete   \{"city":"New York","days":3\}',
    ],
    "03_detect_and_render.py": [
        "== moonshotai/kimi-k2-0905: kimi_k2",
        r"<\|tool_calls_section_begin\|>.*",
        f"read back: {WEATHER}",
        "== Qwen/Qwen3-Coder-30B: qwen_xml",
        "<function=get_weather>",
        f"read back: {WEATHER}",
        "== deepseek-ai/DeepSeek-V3.1: deepseek_v31",
        f"read back: {WEATHER}",
        "== gpt-5: standard",
        '.*"name": "get_weather".*',
    ],
    "04_openai_sdk_on_an_anthropic_upstream.py": [f"chat completions: {WEATHER}", f"responses: {WEATHER}"],
    "05_anthropic_sdk_on_a_leaking_model.py": [
        r"upstream: .*<\|tool_call_begin\|>functions\.get_weather:0.*'finish_reason': 'stop'.*",
        "anthropic: .*'thinking': 'I need the tool get_weather. '.*",
        "anthropic: .*'input': {'city': 'Tokyo'}, 'name': 'get_weather', 'type': 'tool_use'.*",
        "anthropic: stop_reason tool_use",
    ],
    "06_google_sdk_on_any_upstream.py": [f"called: {WEATHER}", f"answer: {ANSWER}", r"stream: I\| am\| Athena's\|.*"],
    "07_one_client_many_models.py": [
        r"listed: \['small', 'no-tools', .*\]",
        f"small: {WEATHER}",
        f"no-tools: {WEATHER}",
        f"claude-sonnet-4-5: {WEATHER}",
    ],
    "08_tool_loop.py": [r"\[get_weather {'city': 'Tokyo'} -> sunny, 21 °C in Tokyo\]", ANSWER, f"answer: {ANSWER}"],
    "09_one_agent_loop_for_all_providers.py": [
        line
        for dialect in ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
        for line in (f"{dialect}: called {WEATHER}", f"{dialect}: answer {ANSWER}")
    ],
    "10_parse_a_log.py": [
        r'1: kimi_k2 search \{"query": "athena"\}',
        r'2: hermes search \{"query": "owl"\}',
        "4: truncated_call: .*",
        r'5: hermes search \{"query": "olive"\}',
        "6: bad_record: .*",
        r"calls by tool: \{'search': 3\}",
    ],
    "11_distributed_batches.py": [
        "calls: 999 in 1000 answers",
        r"cut off: \[999\]",
        r"""the last one: .*'name': 'search', 'arguments': '{"page": 998}'\}""",
    ],
    "12_gateway_with_keys.py": [
        "curl http://.*/v1/messages -H 'authorization: Bearer ath_.*",
        "401 this gateway asks for a key: .*",
        r"200 \{'type': 'tool_use', .*'name': 'get_weather', 'input': \{'city': 'Tokyo'\}\}",
    ],
    "13_track_tool_calls.py": [
        r'complete +0 call_a \{"city": "Tokyo"\}',
        r'complete +1 call_b \{"zone": "UTC"\}',
        "refused +2 malformed_call: .*",
        r"""to be run:  \['get_weather \{"city": "Tokyo"\}', 'get_time \{"zone": "UTC"\}'\]""",
    ],
    "14_model_without_tools.py": [
        "the model, asked with tools: .*does not support tools.*",
        "the request, adapted: no tools, a longer prompt",
        r'the model says: \[\{"name":"get_weather","parameters":\{"city":"Tokyo"\}\}\]',
        "you get: .*'function': {'name': 'get_weather', 'arguments': .*",
    ],
    "15_translate_a_stream.py": [
        "sent upstream: get_weather .*",
        "content_block_delta {'type': 'text_delta', 'text': 'Let me look.'}",
        "content_block_start {'type': 'tool_use', .*'name': 'get_weather', 'input': {}}",
        "message_delta {'stop_reason': 'tool_use', .*",
        "message_stop .*",
    ],
    "16_mount_in_your_app.py": ["GET /: your own page", f"POST /llm/v1/chat/completions: {WEATHER}"],
}
"""Lines that an example prints, in this order, as regular expressions; others may stand between them."""


def run(name: str, home: Path, **variables: str) -> list[str]:
    """The lines that an example prints; it says nothing on standard error."""
    done = run_program(EXAMPLES / name, SDKS, home, environment(home, **variables))
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


def assert_says(lines: list[str], expected: list[str]) -> None:
    rest = iter(lines)
    for pattern in expected:
        assert any(re.fullmatch(pattern, line) for line in rest), f"{pattern!r} is not there, or not in its place: {lines}"


@pytest.mark.parametrize("name", NUMBERED)
def test_an_example_says_what_it_shows(name: str, tmp_path: Path) -> None:
    assert_says(run(name, tmp_path), SAYS[name])


@pytest.mark.parametrize("form", ["kimi-content", "qwen-reasoning"])
def test_an_upstream_of_ones_own(form: str, tmp_path: Path) -> None:
    with LeakingUpstream() as upstream:
        lines = run("08_tool_loop.py", tmp_path, ATHENA_BASE_URL=upstream.url, ATHENA_MODEL=FORMS[form])
    assert_says(lines, SAYS["08_tool_loop.py"][-2:])
    assert [turn.model for turn in upstream.turns] == [FORMS[form]] * 2


def test_examples_are_small_and_say_how_to_run_them() -> None:
    assert len(PROGRAMS) > len(NUMBERED) > 10
    for path in PROGRAMS:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") < 60, path.name
        if path.name != "offline.py":
            lead = ast.get_docstring(ast.parse(text)) if path.suffix == ".py" else text
            assert lead is not None
            assert f"examples/{path.relative_to(EXAMPLES)}" in lead, path.name


def test_the_readme_lists_every_example() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([^)]+\.(?:py|mjs))\)", readme)
    assert sorted(listed) == sorted(str(path.relative_to(EXAMPLES)) for path in PROGRAMS if path.name != "offline.py")

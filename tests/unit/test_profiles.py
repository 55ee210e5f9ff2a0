"""The shipped profiles say what the wire reference records, and a wrong row is refused by name."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.dialects.base import EncodeTarget
from athena.errors import ConfigError
from athena.model.profile import Profile
from athena.model.request import Effort, Loss, Reasoning, Request, Tool, ToolChoice
from athena.prepare.controls import fit_controls
from athena.prepare.tools import fit_choice
from athena.profiles import ModelPattern, default_profiles, parse_profiles, profile_for

_DATA = tomllib.loads((Path(__file__).parent.parent / "cases" / "profiles.toml").read_text("utf-8"))
_CLEAN = {"openai", "openai_responses", "azure", "anthropic", "gemini"}


@pytest.mark.parametrize("case", _DATA["case"], ids=lambda case: f"{case['profile']}-{case['model']}")
def test_shipped_profile(case: dict[str, Any]) -> None:
    profile = msgspec.to_builtins(default_profiles().get(case["profile"], case["model"]))
    told = {key: list(profile[key]) if isinstance(profile[key], tuple) else profile[key] for key in case.get("expect", {})}
    assert told == case.get("expect", {}), case["fact"]
    for key, values in case.get("contains", {}).items():
        assert set(values) <= set(profile[key]), case["fact"]
    for key, values in case.get("lacks", {}).items():
        assert not set(values) & set(profile[key]), case["fact"]


@pytest.mark.parametrize("case", _DATA["error"], ids=lambda case: case["text"].replace("\n", "; "))
def test_wrong_row_is_named(case: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_profiles(case["text"])
    assert caught.value.path == case["path"]
    assert case["message"] in caught.value.message
    assert case["path"] in caught.value.message


def test_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown profile 'nobody'; known: a, b"):
        parse_profiles("[b]\n[a]").get("nobody")


def test_every_shipped_profile_is_covered_by_a_case() -> None:
    """Rows that only rename a compatible base are covered through that base."""
    covered = {case["profile"] for case in _DATA["case"]}
    source = tomllib.loads(_shipped())
    bare = {name for name, table in source.items() if set(table) <= {"inherits"}}
    thin = {"anthropic_compatible", "responses_compatible", "copilot_responses", "llama_cpp_responses"}
    assert set(default_profiles().names()) == covered | bare | thin


def test_only_first_party_bases_are_clean() -> None:
    table = default_profiles()
    assert {name for name in table.names() if table.get(name).clean} == _CLEAN


@pytest.mark.parametrize(
    ("dialect", "model", "name", "expected"),
    [
        ("anthropic_messages", "glm-5", "anthropic_compatible", {"forced_choice": True, "prefill": True, "clean": False}),
        ("anthropic_messages", "claude-opus-5-5", "anthropic", {"forced_choice": False, "clean": False}),
        ("openai_responses", "gpt-oss-120b", "responses_compatible", {"reasoning_control": "effort", "clean": False}),
        ("openai_responses", "gpt-5.1", "openai_responses", {"custom_tools": True, "clean": False}),
        ("gemini", "kimi-k2", "gemini_compatible", {"signed_calls": False, "clean": False}),
        ("gemini", "gemini-3-pro", "gemini", {"signed_calls": True, "clean": False}),
        ("openai_chat", "anything", "generic", {"clean": False}),
    ],
)
def test_a_server_nobody_knows_is_not_held_to_its_dialects_strictest_limits(
    dialect: str, model: str, name: str, expected: dict[str, Any]
) -> None:
    """Only a model that the vendor's own table knows by name keeps the vendor's limits at a strange address."""
    profile = default_profiles().for_unknown_host(dialect, model)
    assert profile.name == name
    assert {key: getattr(profile, key) for key in expected} == expected


def test_names_and_dialects() -> None:
    table = default_profiles()
    for name in table.names():
        profile = table.get(name, "any-model")
        assert profile.name == name
        assert profile.dialect in ("openai_chat", "openai_responses", "anthropic_messages", "gemini")


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("openai_chat", "generic"),
        ("openai_responses", "openai_responses"),
        ("anthropic_messages", "anthropic"),
        ("gemini", "gemini"),
    ],
)
def test_default_of_a_dialect(dialect: str, name: str) -> None:
    assert default_profiles().for_dialect(dialect).name == name


def test_dialect_without_a_default_gets_plain_values() -> None:
    assert parse_profiles("").for_dialect("else") == Profile(dialect="else")


def test_default_profile_is_model_aware() -> None:
    assert default_profiles().for_dialect("anthropic_messages", "claude-opus-4-7").sampling == ()


def test_shipped_table_is_read_once() -> None:
    assert default_profiles() is default_profiles()


def test_every_row_names_its_evidence() -> None:
    """Each row's head, or the comment block above it, says where its facts come from."""
    lines = _shipped().splitlines()
    bare = [
        line
        for number, line in enumerate(lines)
        if line.startswith("[")
        and "#" not in line
        and not lines[number - 1].startswith("#")
        and not lines[number - 2].startswith("#")
    ]
    assert bare == []


def test_inherited_fields_and_models() -> None:
    table = parse_profiles(
        """
        [parent]
        tier = false
        stop_limit = 7
        [[parent.models]]
        match = "big*"
        verbosity = true
        [child]
        inherits = "parent"
        stop_limit = 9
        [[child.models]]
        match = "small*"
        logprobs = false
        """
    )
    assert table.names() == ("child", "parent")
    child = table.get("child")
    assert (child.name, child.tier, child.stop_limit, child.verbosity) == ("child", False, 9, False)
    big = table.get("child", "BIG-1")
    assert (big.name, big.stop_limit, big.verbosity) == ("child", 9, True)
    assert table.get("child", "small").logprobs is False
    assert table.get("parent", "small").logprobs is True


def test_longest_pattern_wins_then_the_later() -> None:
    table = parse_profiles(
        """
        [a]
        [[a.models]]
        match = "gpt-5*"
        stop_limit = 1
        [[a.models]]
        match = "gpt*"
        stop_limit = 2
        tier = false
        [[a.models]]
        match = ["gpt-6*", "gp?-5*"]
        stop_limit = 3
        """
    )
    assert table.get("a", "gpt-5.1").stop_limit == 3
    assert table.get("a", "gpt-5.1").tier is True, "only one row applies"
    assert table.get("a", "gpt-4").stop_limit == 2
    assert table.get("a", "gpt-6").stop_limit == 3
    assert table.get("a").stop_limit == 4


# -- the rows are obeyed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "model", "asked", "sent"),
    [
        ("deepseek", "deepseek-v4", "medium", "high"),
        ("deepseek", "deepseek-v4", "xhigh", "max"),
        ("deepseek", "deepseek-v4", "minimal", "low"),
        ("groq", "qwen/qwen3-32b", "high", "default"),
        ("groq", "openai/gpt-oss-20b", "max", "high"),
        ("openai", "gpt-5.1", "minimal", "low"),
        ("openai", "gpt-5", "none", "minimal"),
        ("openai", "o3", "xhigh", "high"),
        ("gemini", "gemini-3-pro-preview", "medium", "low"),
        ("anthropic", "claude-opus-4-7", "minimal", "low"),
    ],
)
def test_effort_is_sent_in_the_upstreams_words(profile: str, model: str, asked: Effort, sent: str) -> None:
    request = Request(dialect="openai_chat", model=model, reasoning=Reasoning(effort=asked))
    fitted, _ = fit_controls(request, EncodeTarget(model, default_profiles().get(profile, model)), same=False, losses=[])
    assert fitted.reasoning.effort == sent


@pytest.mark.parametrize(
    ("profile", "model", "reasoning", "kept"),
    [
        ("openai", "gpt-5.1", Reasoning(), True),
        ("openai", "gpt-5.1", Reasoning(effort="low"), False),
        ("openai", "gpt-5.5", Reasoning(), False),
        ("openai", "gpt-5.5", Reasoning(mode="off", effort="none"), True),
        ("openai", "gpt-6-sol", Reasoning(mode="off", effort="none"), False),
        ("anthropic", "claude-sonnet-4-6", Reasoning(), True),
        ("anthropic", "claude-sonnet-4-6", Reasoning(mode="adaptive"), False),
        ("anthropic", "claude-opus-4-7", Reasoning(), False),
        ("moonshot", "kimi-k2.5", Reasoning(mode="off"), False),
        ("moonshot", "moonshot-v1-8k", Reasoning(), True),
    ],
)
def test_sampling_goes_only_where_it_is_taken(profile: str, model: str, reasoning: Reasoning, kept: bool) -> None:
    request = Request(dialect="openai_chat", model=model, reasoning=reasoning, temperature=0.5)
    losses: list[Loss] = []
    fitted, _ = fit_controls(request, EncodeTarget(model, default_profiles().get(profile, model)), same=False, losses=losses)
    assert (fitted.temperature is not None) == kept
    assert [loss.path for loss in losses] == ([] if kept else ["temperature"]), "nothing is dropped silently"


@pytest.mark.parametrize(
    ("profile", "model", "reasoning", "mode"),
    [
        ("moonshot", "kimi-k2.6", Reasoning(), "auto"),
        ("moonshot", "kimi-k2.6", Reasoning(mode="off"), "required"),
        ("anthropic", "claude-opus-4-5", Reasoning(budget=2048, mode="on"), "auto"),
        ("anthropic", "claude-opus-4-5", Reasoning(), "required"),
        ("anthropic", "claude-haiku-5-5", Reasoning(mode="adaptive"), "required"),
        ("anthropic", "claude-opus-5-5", Reasoning(mode="off"), "auto"),
        ("ollama", "llama4", Reasoning(), "auto"),
    ],
)
def test_forced_choice_goes_only_where_it_is_taken(profile: str, model: str, reasoning: Reasoning, mode: str) -> None:
    request = Request(
        dialect="openai_chat", model=model, reasoning=reasoning, tools=(Tool(name="f"),), tool_choice=ToolChoice("required")
    )
    fitted = fit_choice(request, EncodeTarget(model, default_profiles().get(profile, model)), [])
    assert fitted.tool_choice is not None
    assert fitted.tool_choice.mode == mode


_NAMES = st.text(alphabet="ab-.5", max_size=12)
_PATTERNS = st.text(alphabet="ab-.5*?", max_size=10)


@given(_PATTERNS, _NAMES)
def test_patterns_match_like_fnmatch(pattern: str, name: str) -> None:
    assert ModelPattern(pattern).matches(name) == fnmatch.fnmatchcase(name, pattern)


def test_brackets_and_dots_are_plain_characters() -> None:
    assert ModelPattern("a[b].*").matches("a[b].c")
    assert not ModelPattern("a[b].*").matches("ab.c")
    assert not ModelPattern("k2.5").matches("k2x5")


def test_hostile_pattern_stays_fast() -> None:
    """A backtracking matcher needs astronomically many steps here; this one searches each piece once."""
    assert not ModelPattern("*a" * 40 + "*b").matches("a" * 20_000 + "c")


def test_a_profile_by_value_by_name_or_by_dialect() -> None:
    table = default_profiles()
    own = Profile(dialect="openai_chat", name="own")
    assert profile_for(own, "gemini", "m") is own
    assert profile_for("vllm", "openai_chat", "m") == table.get("vllm", "m")
    assert profile_for(None, "gemini", "m") == profile_for("", "gemini", "m") == table.for_dialect("gemini", "m")
    with pytest.raises(ConfigError, match="unknown profile"):
        profile_for("nonsense", "gemini")


def _shipped() -> str:
    return (Path(__file__).parent.parent.parent / "src" / "athena" / "profiles.toml").read_text("utf-8")

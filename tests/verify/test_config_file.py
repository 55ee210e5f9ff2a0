"""The profile writer changes the lines that it means and no other."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from athena.shells.verify.config_file import CannotWrite, with_rule, write

CHANGES = {("tools",): "native", ("format",): "kimi_k2", ("quirks", "system_turns"): "first_only", ("context",): 32768}

BEFORE = """\
# Mine. Do not touch.
upstreams:
  local: # the big one
    base_url: http://127.0.0.1:8000/v1

models:
  # Everything small.
  - match: small
    use: local/small
  - match: [big, "big-*"]   # aliases
    use: local/org/big
    tools: auto  # for now
    quirks: {text_content: true}
    timeouts:
      first_byte_s: 900

  - {match: flow, use: local/flow, repair: schema} # one line
log: {level: debug}
"""


def test_a_rule_is_changed_in_place() -> None:
    after = with_rule(BEFORE, "local/org/big", CHANGES)
    assert after == BEFORE.replace("tools: auto  # for now", "tools: native  # for now").replace(
        "quirks: {text_content: true}", "quirks: {text_content: true, system_turns: first_only}"
    ).replace("      first_byte_s: 900\n", "      first_byte_s: 900\n    format: kimi_k2\n    context: 32768\n")
    assert with_rule(after, "local/org/big", CHANGES) == after


def test_a_rule_on_one_line() -> None:
    after = with_rule(BEFORE, "local/flow", {("tools",): "prompted", ("quirks", "drop_fields"): ["seed"]})
    line = "  - {match: flow, use: local/flow, repair: schema, tools: prompted, quirks: {drop_fields: [seed]}} # one line"
    assert line in after.splitlines()


def test_a_new_rule_comes_first_because_the_first_that_matches_wins() -> None:
    after = with_rule(BEFORE, "local/new", {("format",): "hermes"})
    assert "  - match: new\n    use: local/new\n    format: hermes\n  - match: small\n" in after
    assert after.startswith("# Mine. Do not touch.\n")


def test_a_block_is_written_anew_unless_a_comment_stands_in_it() -> None:
    after = with_rule(BEFORE, "local/org/big", {("timeouts", "first_byte_s"): 1200})
    assert "    timeouts: {first_byte_s: 1200}\n" in after
    commented = BEFORE.replace("first_byte_s: 900", "first_byte_s: 900 # slow")
    with pytest.raises(CannotWrite, match="comment"):
        with_rule(commented, "local/org/big", {("timeouts", "first_byte_s"): 1200})


def test_files_without_rules_get_some() -> None:
    assert with_rule("", "u/m", {("tools",): "native"}) == "models:\n  - match: m\n    use: u/m\n    tools: native\n"
    flat = "base_url: http://127.0.0.1:8000  # local\n"
    assert (
        with_rule(flat, "default/m", {("format",): "hermes"})
        == flat + "\nmodels:\n  - match: m\n    use: default/m\n    format: hermes\n"
    )


@pytest.mark.parametrize("text", ["models: [{match: a, use: u/a}]\n", "a: [\n", "- 1\n", "models: 3\n"])
def test_what_can_not_be_changed_with_care_is_left_alone(text: str) -> None:
    with pytest.raises(CannotWrite):
        with_rule(text, "u/m", {("tools",): "native"})


def test_writing_keeps_mode_and_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yml", tmp_path / "athena.yml"
    real.write_text("a: 1\n")
    real.chmod(0o640)
    link.symlink_to(real)
    write(link, "a: 2\n")
    assert link.is_symlink()
    assert real.read_text() == "a: 2\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

"""Where a user's files are: by the XDG variables, and where an earlier release left them."""

from __future__ import annotations

from pathlib import Path

from athena.shells.config.user_directories import config_directory, state_directory


def test_the_usual_places(tmp_path: Path) -> None:
    assert state_directory({}, tmp_path) == tmp_path / ".local" / "state" / "athena"
    assert config_directory({}, tmp_path) == tmp_path / ".config" / "athena"


def test_the_variables_count_when_they_are_absolute(tmp_path: Path) -> None:
    chosen = {"XDG_STATE_HOME": str(tmp_path / "s"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    assert state_directory(chosen, tmp_path) == tmp_path / "s" / "athena"
    assert config_directory(chosen, tmp_path) == tmp_path / "c" / "athena"
    assert state_directory({"XDG_STATE_HOME": "relative"}, tmp_path) == tmp_path / ".local" / "state" / "athena"


def test_what_an_earlier_release_made_goes_on_to_be_used(tmp_path: Path) -> None:
    chosen = {"XDG_STATE_HOME": str(tmp_path / "s"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    (tmp_path / ".athena").mkdir()
    (tmp_path / ".config" / "athena").mkdir(parents=True)
    assert state_directory(chosen, tmp_path) == tmp_path / ".athena"
    assert config_directory(chosen, tmp_path) == tmp_path / ".config" / "athena"
    (tmp_path / "c" / "athena").mkdir(parents=True)
    assert config_directory(chosen, tmp_path) == tmp_path / "c" / "athena"

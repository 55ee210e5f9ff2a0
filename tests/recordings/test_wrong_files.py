"""What commands say about files that are no recordings: which file it is, and what is wrong with it."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from athena.errors import AthenaError
from athena.recording import file
from athena.recording.file import UnreadableRecording
from athena.recording.lines import Settings
from athena.recording.replay import replay
from athena.shells.cli import cli
from athena.shells.recorder.archive import Archive
from athena.shells.recorder.recorder import DATABASE
from athena.shells.recorder.token import inspector_token
from athena.testing import replayed_upstream
from support.gateway_process import running_gateway
from support.patience import PATIENCE

SAMPLE = Path(__file__).parents[1] / "cases" / "recordings" / "leaked_call.athena"
CASE = Path(__file__).parents[1] / "cases" / "exchanges" / "leaked_call.toml"
READERS = [
    command.split()
    for command in ("replay", "replay --serve", "replay --case", "record import", "record show", "record redact")
]


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    """The option that names a configuration with a state directory of its own."""
    config = tmp_path / "athena.yml"
    config.write_text(json.dumps({"base_url": "http://127.0.0.1:9/v1", "state_dir": str(tmp_path / "s"), "port": 1}))
    return ["--config", str(config)]


def complaint(*arguments: str) -> str:
    """What a command that fails says; one that has a fault raises something else."""
    with pytest.raises(AthenaError) as caught:
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    return caught.value.message


@pytest.mark.parametrize("reader", READERS, ids=" ".join)
@pytest.mark.parametrize("content", [b"", b"\n \n"], ids=["empty", "empty lines"])
def test_a_file_without_an_exchange_is_an_error(tmp_path: Path, settings: list[str], reader: list[str], content: bytes) -> None:
    empty = tmp_path / "empty.athena"
    empty.write_bytes(content)
    where = settings if reader[-1] in ("import", "show") else []
    assert complaint(*reader, *where, str(empty)) == f"{empty}: there is no exchange in this file"


@pytest.mark.parametrize("reader", READERS, ids=" ".join)
def test_what_is_wrong_is_said_with_the_name_of_the_file(tmp_path: Path, settings: list[str], reader: list[str]) -> None:
    where = settings if reader[-1] in ("import", "show") else []
    cut, other = tmp_path / "cut.athena", tmp_path / "other.athena"
    cut.write_bytes(SAMPLE.read_bytes()[:2000].rpartition(b"\n")[0])
    assert complaint(*reader, *where, str(SAMPLE), str(cut)) == f"{cut}: the file ends inside of an exchange"
    other.write_text("hello\n")
    assert complaint(*reader, *where, str(SAMPLE), str(other)).startswith(f"{other}: line 1 is not a line of a recording")


def test_what_is_wrong_with_a_case_is_said_with_the_name_of_the_file(tmp_path: Path) -> None:
    case = tmp_path / "case.toml"
    case.write_text("name = 1")
    assert complaint("replay", str(CASE), str(case)).startswith(f"{case}: this is no case: ")
    good = CASE.read_text(encoding="utf-8")
    case.write_text(re.sub("recording = '''.*'''", "recording = '''\nhello\n'''", good, flags=re.DOTALL))
    assert complaint("replay", str(case)).startswith(f"{case}: line 1 is not a line of a recording")
    lines = re.search("recording = '''\n(.*)'''", good, flags=re.DOTALL)
    assert lines is not None
    case.write_text(good.replace(lines[1], lines[1] * 2))
    assert complaint("replay", str(case)) == f"{case}: a case holds one exchange; this one holds 2"
    case.write_bytes(b"\xff")
    assert complaint("replay", str(case)).startswith(f"{case}: this is no case: ")


def test_a_replayed_upstream_names_the_file_that_it_cannot_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.athena"
    empty.write_bytes(b"")
    with pytest.raises(UnreadableRecording, match=re.escape(f"{empty}: there is no exchange")), replayed_upstream(empty):
        pass


# -- other wrong usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS, ids=" ".join)
def test_a_recording_without_its_settings_is_refused(tmp_path: Path, settings: list[str], reader: list[str]) -> None:
    where = settings if reader[-1] in ("import", "show") else []
    bare = tmp_path / "bare.athena"
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    bare.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"line":"settings"')))
    expected = f"{bare}: the exchange that ends in line {len(lines) - 1} has no settings"
    assert complaint(*reader, *where, str(bare)) == expected


def test_a_recording_that_names_no_target_cannot_be_replayed() -> None:
    (recording,) = file.decode(SAMPLE.read_bytes())
    with pytest.raises(UnreadableRecording, match="req_1 names no target"):
        replay(msgspec.structs.replace(recording, settings=Settings()))


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = complaint("replay", "--serve", str(SAMPLE), "--port", str(port))
    assert said.startswith(f"cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize("url", ["garbage", "http://127.0.0.1:port", "http://[::1", "nothing://127.0.0.1:1"])
def test_an_address_that_is_none_is_named(settings: list[str], url: str) -> None:
    address = url if "://" in url else f"http://{url}"
    assert complaint("record", "list", *settings, "--url", url).startswith(f"no gateway answers at {address}: ")


@pytest.mark.parametrize("command", [["list"], ["import", str(SAMPLE)], ["delete", "req_1", "--yes"], ["show", "req_1"]])
def test_a_file_that_is_no_database_is_named(tmp_path: Path, settings: list[str], command: list[str]) -> None:
    database = own_file(tmp_path / "s")
    database.write_bytes(b"this is no database" * 100)
    assert complaint("record", *command, *settings) == f"{database} cannot be used: file is not a database"


def test_a_database_that_is_locked_is_named(tmp_path: Path, settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    database = own_file(tmp_path / "s")
    for name in ("rows", "add"):
        monkeypatch.setattr(Archive, name, locked)
    for command in (["list"], ["delete", "req_1"], ["import", str(SAMPLE)]):
        assert complaint("record", *command, *settings) == f"{database} cannot be used: database is locked"


def test_the_inspector_says_that_the_database_cannot_be_used(tmp_path: Path) -> None:
    database = own_file(tmp_path / "s")
    database.write_bytes(b"this is no database" * 100)
    config = {"base_url": "http://127.0.0.1:9/v1", "state_dir": str(tmp_path / "s"), "record": {"mode": "disk"}}
    with running_gateway(config, tmp_path) as gateway:
        token = inspector_token(tmp_path / "s")
        with (
            pytest.raises(urllib.error.HTTPError) as caught,
            urllib.request.urlopen(f"{gateway.url}/inspect/api/exchanges?token={token}", timeout=PATIENCE),
        ):
            pass
        with caught.value as answer:
            assert answer.code == 503
            assert json.load(answer)["error"]["message"] == f"{database} cannot be used: file is not a database"


def own_file(directory: Path) -> Path:
    """An empty file in the place of the archive, that belongs to this user alone."""
    directory.mkdir(mode=0o700)
    database = directory / DATABASE
    database.touch(mode=0o600)
    return database

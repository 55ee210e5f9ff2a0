"""Files that Athena keeps for itself: its key, logs, recordings and state. What others control is refused, with the remedy."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from athena.errors import AthenaError
from athena.recording.room import Room
from athena.recording.tap import RecordingTap
from athena.serving.record import RequestRecord
from athena.shells import own_files
from athena.shells.config import Config, Log
from athena.shells.daemon import DaemonState, Home
from athena.shells.envelope_key import kept_envelope_key
from athena.shells.logs import configure, shut_down
from athena.shells.logs.sinks import FileSink
from athena.shells.own_files import UnsafePlace, check_directory, create_own, open_own, others_may_write, read_own, replace_own
from athena.shells.recorder.frames import Frames, FrameWriter, check_sse_dir
from athena.transport import Transport
from support.athena_process import athena, serving
from support.patience import PATIENCE

TEXT_LINE = "2026-01-01 10:00:00.000 info    listening url=http://127.0.0.1:12377\n"
JSON_LINE = '{"time":"2026-01-01T10:00:00.000Z","level":"info","logger":"athena.server","message":"listening"}\n'


@pytest.fixture
def another_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on, everything on the disk belongs to another family."""
    return lambda: monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4321)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- the rules -------------------------------------------------------------------------------------------------------------


def test_directories_that_are_refused(tmp_path: Path, another_user: Callable[[], None]) -> None:
    fine = tmp_path / "fine"
    fine.mkdir(mode=0o755)
    check_directory(fine)
    (tmp_path / "link").symlink_to(fine)
    check_directory(tmp_path / "link")
    for bits in (0o777, 0o702):
        fine.chmod(bits)
        with pytest.raises(UnsafePlace, match=f"others can write .*mode {bits:o}.*: chmod go-w {fine}"):
            check_directory(fine)
    fine.chmod(0o700)
    (tmp_path / "file").touch()
    with pytest.raises(UnsafePlace, match="not a directory"):
        check_directory(tmp_path / "file")
    another_user()
    with pytest.raises(UnsafePlace, match=f"another user .*such as {fine}/athena"):
        check_directory(fine)
    with pytest.raises(UnsafePlace, match="symbolic link that another user made"):
        check_directory(tmp_path / "link") if os.getuid() else _foreign_link(tmp_path / "link")


def _foreign_link(link: Path) -> None:
    """A link of root counts as safe; what it leads to still has to be ours."""
    with pytest.raises(UnsafePlace, match="belongs to another user"):
        check_directory(link)
    os.lchown(link, 4322, 4322)
    check_directory(link)


def test_a_group_of_ones_own_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o664)
    monkeypatch.setattr(own_files, "_is_private_group", lambda number: True)
    assert not others_may_write(file.stat())
    monkeypatch.setattr(own_files, "_is_private_group", lambda number: False)
    assert others_may_write(file.stat())
    file.chmod(0o666)
    monkeypatch.setattr(own_files, "_is_private_group", lambda number: True)
    assert others_may_write(file.stat())


def test_files_that_are_refused(tmp_path: Path, another_user: Callable[[], None]) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREAT):
        for name, words in {
            "link": "symbolic link",
            "dangling": "symbolic link",
            "pipe": "not a regular file",
            "directory": "not a regular file",
        }.items():
            with pytest.raises(UnsafePlace, match=words):
                open_own(tmp_path / name, flags)
    assert not (tmp_path / "none").exists()
    assert read_own(file, 2) == b"ol"
    assert read_own(tmp_path / "none", 9) is None
    another_user()
    with pytest.raises(UnsafePlace, match="another user"):
        read_own(file, 9)


def test_files_are_written_whole_and_private(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert create_own(file, b"one")
    assert not create_own(file, b"two")
    assert (file.read_bytes(), mode(file)) == (b"one", 0o600)
    replace_own(file, b"three")
    assert (file.read_bytes(), mode(file)) == (b"three", 0o600)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("not to be touched")
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    assert not create_own(link, b"four")
    replace_own(link, b"five")
    assert not link.is_symlink()
    assert elsewhere.read_text() == "not to be touched"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "file", "link"], "nothing is left lying about"


def test_a_disk_without_links_keeps_the_first_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert create_own(tmp_path / "file", b"one")
    assert not create_own(tmp_path / "file", b"two")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"one"]


# -- the envelope key ------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_and_kept(tmp_path: Path) -> None:
    config = Config(state_dir=str(tmp_path / "state"))
    key = kept_envelope_key(config)
    assert len(key) == 32
    assert kept_envelope_key(config) == key
    assert mode(tmp_path / "state") == 0o700
    assert mode(tmp_path / "state" / "envelope.key") == 0o600
    (tmp_path / "state" / "envelope.key").write_text(f" {key.hex().upper()}\n")
    assert kept_envelope_key(config) == key


def test_all_who_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    for round_number in range(20):
        config = Config(state_dir=str(tmp_path / str(round_number)))
        barrier = threading.Barrier(8)
        keys: list[bytes] = []

        def start(config: Config = config, barrier: threading.Barrier = barrier, keys: list[bytes] = keys) -> None:
            barrier.wait(PATIENCE)
            keys.append(kept_envelope_key(config))

        threads = [threading.Thread(target=start) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(keys) == 8
        assert len(set(keys)) == 1
        assert [path.name for path in (tmp_path / str(round_number)).iterdir()] == ["envelope.key"]


@pytest.mark.parametrize("text", ["", "\n", "a", "ab", "not hex", "0" * 62, "0" * 66, "g" * 64, "0" * 64 + "\n" + "0" * 64])
def test_a_damaged_key_is_refused_and_stays(tmp_path: Path, text: str) -> None:
    file = tmp_path / "envelope.key"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(AthenaError, match="64 hexadecimal digits; restore it, or remove it") as caught:
        kept_envelope_key(Config(state_dir=str(tmp_path)))
    assert caught.value.code == "envelope_key"
    assert file.read_text() == text


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o620, 0o602])
def test_a_key_that_others_know_is_refused(tmp_path: Path, bits: int) -> None:
    file = tmp_path / "envelope.key"
    file.write_text("0" * 64)
    file.chmod(bits)
    with pytest.raises(AthenaError, match=f"chmod 600 {file}"):
        kept_envelope_key(Config(state_dir=str(tmp_path)))


def test_a_key_behind_a_link_or_of_another_user_is_refused(tmp_path: Path, another_user: Callable[[], None]) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    chosen = tmp_path / "chosen"
    chosen.write_text("0" * 64)
    chosen.chmod(0o600)
    (state / "envelope.key").symlink_to(chosen)
    config = Config(state_dir=str(state))
    with pytest.raises(AthenaError, match="symbolic link"):
        kept_envelope_key(config)
    (state / "envelope.key").unlink()
    (state / "envelope.key").symlink_to(tmp_path / "none")
    with pytest.raises(AthenaError, match="symbolic link"):
        kept_envelope_key(config)
    assert not (tmp_path / "none").exists()
    state.chmod(0o777)
    with pytest.raises(AthenaError, match="chmod go-w"):
        kept_envelope_key(config)
    another_user()
    with pytest.raises(AthenaError, match="another user"):
        kept_envelope_key(config)


def test_where_nothing_can_be_kept_the_key_lasts_as_long_as_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    config = Config(state_dir=str(tmp_path / "file" / "state"))
    assert kept_envelope_key(config) != kept_envelope_key(config)
    assert "reasoning state ends with this process" in caplog.text


def test_a_damaged_key_stops_every_way_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / ".local/state/athena"
    state.mkdir(parents=True, mode=0o700)
    (state / "envelope.key").touch(mode=0o600)
    result = athena(tmp_path, "serve", "--port", "0", "--demo")
    assert result.code == 1
    assert f"{state}/envelope.key does not hold a key" in result.err
    assert "Traceback" not in result.err
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(AthenaError, match="does not hold a key"):
        Transport(base_url="http://127.0.0.1:9")
    assert (state / "envelope.key").read_bytes() == b""


# -- logs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", TEXT_LINE, JSON_LINE, "athena: warning: no key is set\n"])
def test_a_log_of_ours_is_continued(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.log"
    file.write_text(text)
    file.chmod(0o644)
    sink = FileSink(file, 10_000)
    sink.write(TEXT_LINE)
    sink.close()
    assert file.read_text() == text + TEXT_LINE
    assert mode(file) == 0o600


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_logged_is_known_again(tmp_path: Path, form: str) -> None:
    file = tmp_path / "a.log"
    for _ in range(2):
        configure(Config(log=Log(file=str(file), format=form)), threaded=False)  # type: ignore[arg-type]  # both are forms
        try:
            logging.getLogger("athena.test").warning("said")
        finally:
            shut_down()
    assert file.read_text().count("said") == 2


@pytest.mark.parametrize(
    "text", ["alias ls='ls -l'\n", "\n", "{}\n", '{"time": 1}', "2026-01-01 a diary\n", " " + TEXT_LINE, "\x00"]
)
def test_nothing_is_written_into_other_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / ".bashrc"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(UnsafePlace, match="is there already and is not a log of Athena; name another file"):
        FileSink(file, 10_000)
    assert (file.read_text(), mode(file)) == (text, 0o644)


def test_logs_are_not_written_through_links_pipes_or_for_others(tmp_path: Path, another_user: Callable[[], None]) -> None:
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name, words in {"link": "symbolic link", "pipe": "regular file", "directory": "regular file"}.items():
        with pytest.raises(UnsafePlace, match=words):
            FileSink(tmp_path / name, 10_000)
    with pytest.raises(UnsafePlace, match=r"symbolic link|regular file"):
        FileSink(Path("/dev/stdout"), 10_000)
    assert not target.exists()
    (tmp_path / "a.log").write_text(TEXT_LINE)
    another_user()
    with pytest.raises(UnsafePlace, match="another user"):
        FileSink(tmp_path / "a.log", 10_000)


def test_a_full_log_does_not_push_other_files_out(tmp_path: Path) -> None:
    diary = tmp_path / "a.log.2"
    diary.write_text("dear diary\n")
    with pytest.raises(UnsafePlace, match=r"a\.log\.2 is there already"):
        FileSink(tmp_path / "a.log", 100)
    diary.write_text(TEXT_LINE)
    sink = FileSink(tmp_path / "a.log", 100)
    for _ in range(9):
        sink.write(TEXT_LINE)
    sink.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2", "a.log.3"]


def test_a_log_that_becomes_a_link_is_no_longer_written(tmp_path: Path) -> None:
    file, target = tmp_path / "a.log", tmp_path / ".bashrc"
    target.write_text("")
    sink = FileSink(file, 10_000)
    file.unlink()
    file.symlink_to(target)
    with pytest.raises(UnsafePlace, match="symbolic link"):
        sink.write(TEXT_LINE)
    sink.close()
    assert target.read_text() == ""


@pytest.mark.parametrize("command", [("serve", "--port", "0", "--demo"), ("start", "--wait", "20s", "--port", "0", "--demo")])
def test_a_start_does_not_write_over_a_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / ".bashrc"
    file.write_text("alias ls='ls -l'\n")
    result = athena(tmp_path, *command, "--log-file", str(file))
    assert result.code == 1
    assert f"the log file cannot be written: {file} is there already and is not a log of Athena" in result.err
    assert "Traceback" not in result.err
    assert file.read_text() == "alias ls='ls -l'\n"
    assert not Home(tmp_path / ".local/state/athena").is_locked()


def test_a_reload_does_not_write_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / ".bashrc"
    file.write_text("alias ls='ls -l'\n")
    config = {"base_url": "http://127.0.0.1:9"}
    with serving(tmp_path, config=config) as server:

        def said(words: str) -> bool:
            return words in server.log()

        for log in ({"file": str(file)}, {"sse_dir": str(file)}):
            (tmp_path / "athena.yml").write_text(json.dumps({**config, "log": log}))
            words = f"refused, the old one stays: {'log.sse_dir cannot be used: ' if 'sse_dir' in log else ''}{file} is"
            wait_for(partial(said, words))
    assert file.read_text() == "alias ls='ls -l'\n"


def wait_for(holds: Callable[[], bool]) -> None:
    """Until it holds; the limit is generous, since a busy machine is no fault."""
    done = threading.Event()
    for _ in range(600):
        if holds():
            return
        done.wait(0.1)
    raise AssertionError("it did not come to pass")


# -- recordings ------------------------------------------------------------------------------------------------------------


def test_recordings_go_only_where_nobody_else_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "frames"
    check_sse_dir("")
    check_sse_dir(str(place))
    assert mode(place) == 0o700
    place.chmod(0o777)
    with pytest.raises(AthenaError, match=r"log\.sse_dir cannot be used: others can write") as caught:
        check_sse_dir(str(place))
    assert caught.value.code == "sse_dir"
    tap = RecordingTap(RequestRecord(request_id="r"), None, Room(1 << 20), lambda tap: None, version="test")
    tap.upstream_head(200, {}, 0.0)
    tap.upstream_bytes(b"data: x\n\n", 0.0)
    writer = FrameWriter(1 << 20)
    writer.put(Frames(str(place), tap, ()))
    writer.close()
    assert "request r is not in log.sse_dir: others can write" in caplog.text
    assert not list(place.iterdir())
    (tmp_path / "file").touch()
    result = athena(tmp_path, "serve", "--port", "0", "--demo", ATHENA_LOG__SSE_DIR=str(tmp_path / "file"))
    assert result.code == 1
    assert "log.sse_dir cannot be used" in result.err


# -- the background process ------------------------------------------------------------------------------------------------


def test_a_state_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    state = tmp_path / ".local/state/athena"
    state.mkdir(parents=True)
    state.chmod(0o777)
    for command in (("start", "--port", "0", "--demo"), ("status",), ("stop",), ("serve", "--port", "0", "--demo")):
        result = athena(tmp_path, *command)
        assert result.code == 1, command
        assert f"chmod go-w {state}" in result.err, command
    assert not list(state.iterdir())


def test_a_state_file_of_somebody_else_is_not_believed(tmp_path: Path, another_user: Callable[[], None]) -> None:
    home = Home(tmp_path / "state")
    lock = home.lock()
    home.write(DaemonState(pid=os.getpid(), port=1, start_time="", config_path="", url="http://127.0.0.1:1"))
    assert home.running().url == "http://127.0.0.1:1"
    another_user()
    with pytest.raises(AthenaError, match="another user") as caught:
        home.running()
    assert caught.value.code == "state_dir"
    assert home.read() is None
    os.close(lock)


def test_a_start_replaces_no_file_that_is_not_its_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "state")
    os.close(home.lock())
    home.pid_file.write_text("a file of somebody's own\n")
    with pytest.raises(AthenaError, match=r"athena\.pid is there already and is not a state file of Athena"):
        home.lock()
    home.pid_file.unlink()
    home.lock_file.unlink()
    home.lock_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AthenaError, match="symbolic link"):
        home.lock()
    assert not (tmp_path / "elsewhere").exists()
    home.lock_file.unlink()
    home.log_file.write_text("a diary\n")
    result = athena(tmp_path, "start", "--port", "0", "--demo", ATHENA_STATE_DIR=str(tmp_path / "state"))
    assert result.code == 1
    assert "athena.log is there already and is not a log of Athena" in result.err
    assert home.log_file.read_text() == "a diary\n"


def test_a_second_start_knows_the_log_of_a_failed_one(tmp_path: Path) -> None:
    """What a process says before its logging begins stands in the log as well."""
    bad = athena(tmp_path, "start", "--wait", "20s", "--demo", "--port", "0", "--log-file", str(tmp_path))
    assert bad.code == 1
    assert "not a regular file" in bad.err
    good = athena(tmp_path, "start", "--wait", "20s", "--demo", "--port", "0")
    assert good.code == 0, good.err
    assert athena(tmp_path, "stop").code == 0

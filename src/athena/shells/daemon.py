"""The gateway in the background: started, found, followed and stopped.

The directory `state_dir` holds `athena.pid` (JSON, mode 600, replaced whole), `athena.log` and `athena.lock`. The running
process holds the lock for as long as it lives, so a stale file, a reused process id or two starts at once cannot mislead.
A gateway in a terminal leaves word of itself too, in `terminals/PID.json`, which it keeps locked while it lives.
A directory or file that another user controls is refused: it could name somebody else's gateway as ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from athena import __version__
from athena.errors import AthenaError
from athena.shells.logs.lines import plain_line
from athena.shells.logs.sinks import open_log
from athena.shells.own_files import UnsafePlace, check_directory, open_own, own_directory, read_own, replace_own
from athena.shells.server import Plan, Started, serve

KEY_VARIABLE = "_ATHENA_UPSTREAM_KEY"
"""Carries a key from the starting process to the background one: unlike arguments, others cannot read it."""
LOWEST_PORT = 1024
_STATE_BYTES = 64 * 1024
_TAIL_LINES = 20
_HASTE_SECONDS = 2.0


class DaemonState(msgspec.Struct, frozen=True, kw_only=True):
    """What the background process tells about itself."""

    pid: int
    port: int
    start_time: str
    config_path: str
    url: str = ""
    log_file: str = ""
    demo: bool = False
    """No upstream is configured: the built-in demo model answers."""
    version: str = ""

    @property
    def uptime_s(self) -> float:
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.start_time)).total_seconds())


_read_state = msgspec.json.Decoder(DaemonState).decode


class NotRunning(AthenaError):
    """No gateway runs in the background."""

    code = "not_running"


class Home:
    """The directory of the background process."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).expanduser()
        self.pid_file = self.directory / "athena.pid"
        self.lock_file = self.directory / "athena.lock"
        self.log_file = self.directory / "athena.log"
        self.terminals = self.directory / "terminals"

    # -- state -------------------------------------------------------------------------------------------------------------

    def read(self) -> DaemonState | None:
        """The state file as it is, of a running process or not."""
        try:
            return _read_state(read_own(self.pid_file, _STATE_BYTES) or b"")
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, state: DaemonState) -> None:
        """Replace the state file in one step; mode 600."""
        replace_own(self.pid_file, msgspec.json.format(msgspec.json.encode(state)) + b"\n")

    def forget(self, pid: int) -> None:
        """Remove the state file if it is this process's."""
        state = self.read()
        if state is not None and state.pid == pid:
            self.pid_file.unlink(missing_ok=True)

    # -- gateways in terminals ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def announced(self) -> Iterator[Callable[[DaemonState], None]]:
        """For a gateway in a terminal: what it hands over is found by others until it ends. Where nothing can be written,
        nobody finds it, and it serves all the same."""
        descriptors: list[int] = []
        file = self.terminals / f"{os.getpid()}.json"

        def announce(state: DaemonState) -> None:
            with contextlib.suppress(OSError):
                own_directory(self.directory)
                own_directory(self.terminals)
                descriptor = open_own(file, os.O_RDWR | os.O_CREAT)
                descriptors.append(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.truncate(descriptor, 0)
                os.write(descriptor, msgspec.json.encode(state))

        try:
            yield announce
        finally:
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)
                os.close(descriptor)

    def in_terminals(self) -> list[DaemonState]:
        """The gateways that run in terminals, the one that was started last first."""
        found = []
        with contextlib.suppress(OSError):
            check_directory(self.terminals)
            for file in self.terminals.glob("*.json"):
                state = _living(file)
                if state is not None:
                    found.append(state)
        return sorted(found, key=lambda state: state.start_time, reverse=True)

    # -- the lock ----------------------------------------------------------------------------------------------------------

    def lock(self) -> int:
        """The lock's descriptor, taken. Raises AthenaError when a gateway has it, or when others control the directory."""
        try:
            own_directory(self.directory)
            self._check_pid_file()
            descriptor = open_own(self.lock_file, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            state = self.read()
            where = f" (pid {state.pid}, port {state.port})" if state is not None else ""
            raise AthenaError(f"a gateway already runs in the background{where}", code="already_running") from None
        return descriptor

    def _check_pid_file(self) -> None:
        """What will be replaced by the state file must be an earlier one."""
        earlier = read_own(self.pid_file, _STATE_BYTES)
        try:
            if earlier:
                _read_state(earlier)
        except msgspec.MsgspecError:
            message = f"{self.pid_file} is there already and is not a state file of Athena; move it away"
            raise UnsafePlace(message) from None

    def _unusable(self, error: OSError) -> AthenaError:
        return AthenaError(f"the state directory {self.directory} cannot be used: {error.strerror or error}", code="state_dir")

    def is_locked(self) -> bool:
        """Whether a background process holds the lock."""
        try:
            descriptor = open_own(self.lock_file, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def running(self) -> DaemonState:
        """The state of the running process. Raises NotRunning, and AthenaError for a directory that others control."""
        try:
            check_directory(self.directory)
        except UnsafePlace as error:
            raise self._unusable(error) from None
        except OSError:
            raise NotRunning("no gateway runs in the background") from None
        state = self.read()
        if not self.is_locked() or state is None:
            raise NotRunning("no gateway runs in the background")
        return state


def _living(file: Path) -> DaemonState | None:
    """What a gateway in a terminal says of itself; None, and the file removed, when it has ended."""
    try:
        descriptor = open_own(file, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return _read_state(os.pread(descriptor, _STATE_BYTES, 0))
        return None
    else:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        return None
    finally:
        os.close(descriptor)


# -- start -----------------------------------------------------------------------------------------------------------------


def launch(home: Home, arguments: Sequence[str], environment: Mapping[str, str], patience: float) -> DaemonState:
    """Start `athena serve` with these arguments in the background; its state once it listens. Raises AthenaError."""
    lock = home.lock()
    try:
        log = _opened_log(home)
        already = os.fstat(log).st_size
        # -P: a directory named athena where the person happens to be must not be taken for the program.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "athena", "serve", *arguments, "--detached", str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            pass_fds=(lock,),
            start_new_session=True,
        )
        os.close(log)
    finally:
        os.close(lock)
    return _await_start(home, process, patience, already)


def _opened_log(home: Home) -> int:
    """The log that a background process says everything into, also what it says before its own logging begins.

    A new one gets a first line in the form of a log line: by that the next start knows the file as a log of Athena.
    """
    try:
        log = open_log(home.log_file)
        if not os.fstat(log).st_size:
            os.write(log, plain_line("started in the background").encode())
    except OSError as error:
        raise AthenaError(f"the log file cannot be written: {error}", code="log_file") from None
    return log


def _await_start(home: Home, process: subprocess.Popen[bytes], patience: float, already: int) -> DaemonState:
    deadline = time.monotonic() + patience
    while True:
        state = home.read()
        if state is not None and state.pid == process.pid:
            # Left to run on its own: not a child to wait for.
            process.returncode = 0
            return state
        code = process.poll()
        if code is not None or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if code is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        process.kill()
        process.wait()
        reason = f"the gateway was not up within {patience:g} s"
    else:
        reason = f"the gateway ended at once (exit code {code})"
    said = tail(home.log_file, _TAIL_LINES, after=already)
    log = "\n".join(f"  {line}" for line in said) or "  (nothing)"
    raise AthenaError(f"{reason}; its log {home.log_file} says:\n{log}", code="not_started")


def serve_detached(plan: Plan, lock: int) -> int:
    """In the background process: serve, and say so in the state file. `lock` stays open until the end."""
    os.set_inheritable(lock, False)
    home = Home(plan.loaded.config.state_dir)

    def started(result: Started) -> None:
        home.write(_state(plan, result, plan.loaded.config.log.file or str(home.log_file)))

    try:
        return serve(msgspec.structs.replace(plan, default_log_file=str(home.log_file), on_started=started))
    finally:
        home.forget(os.getpid())


def serve_in_terminal(plan: Plan) -> int:
    """Serve in the foreground, to be found by `athena code` and `athena status`."""
    with Home(plan.loaded.config.state_dir).announced() as announce:

        def started(result: Started) -> None:
            announce(_state(plan, result, plan.loaded.config.log.file))
            plan.on_started(result)

        return serve(msgspec.structs.replace(plan, on_started=started))


def _state(plan: Plan, result: Started, log_file: str) -> DaemonState:
    files = plan.loaded.files
    return DaemonState(
        pid=os.getpid(),
        port=result.port,
        start_time=datetime.now(UTC).isoformat(timespec="seconds"),
        config_path=str(files[-1].resolve()) if files else "",
        url=result.url,
        log_file=str(Path(log_file).expanduser().resolve()) if log_file else "",
        demo=result.demo,
        version=__version__,
    )


# -- stop ------------------------------------------------------------------------------------------------------------------


def stop(home: Home, patience: float) -> bool:
    """End the background process: asked first, made to after `patience` seconds. Returns whether asking was enough."""
    state = home.running()
    _signal(state.pid, signal.SIGTERM)
    if _ended(home, patience):
        return True
    # A second signal ends it at once, with a last word to its clients.
    _signal(state.pid, signal.SIGTERM)
    if not _ended(home, _HASTE_SECONDS):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(state.pid, signal.SIGKILL)
        _ended(home, _HASTE_SECONDS)
        home.forget(state.pid)
    return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _ended(home: Home, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while home.is_locked():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


# -- the log ---------------------------------------------------------------------------------------------------------------


def tail(file: Path, lines: int, *, after: int = 0) -> list[str]:
    """The last lines of a log, of those after the byte `after`."""
    try:
        with open(file, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            start = after if after <= size else 0
            log.seek(max(start, size - 1024 * max(lines, 1)))
            data = log.read()
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()[-lines:] if lines else []


def follow(file: Path, pause: float = 0.2) -> Iterator[str]:
    """What is written to a log from now on, over rotations, without end."""
    log = None
    try:
        while True:
            if log is None:
                with contextlib.suppress(OSError):
                    log = open(file, "rb")  # noqa: SIM115  # closed below, at the next rotation or at the end
                    log.seek(0, os.SEEK_END)
            text = log.read() if log is not None else b""
            if text:
                yield text.decode("utf-8", "replace")
                continue
            time.sleep(pause)
            if log is not None and _moved(log.fileno(), file):
                if rest := log.read():
                    yield rest.decode("utf-8", "replace")
                log.close()
                log = None
                with contextlib.suppress(OSError):
                    log = open(file, "rb")  # noqa: SIM115  # as above; a new file is read from its start
    finally:
        if log is not None:
            log.close()


def _moved(descriptor: int, file: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino != os.stat(file).st_ino
    except OSError:
        return False

"""Running a coding agent on a gateway: find or start the gateway, check it, run the agent in the foreground, clean up.

The agent has the terminal: its input, output and exit code are the person's. Nothing of the person's settings is changed, and
nothing that was started here outlives the agent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from athena.errors import AthenaError
from athena.shells import daemon, temporary_gateway
from athena.shells.agents import Agent, Launch, launch, lay_over
from athena.shells.config import Config, Loaded, Window
from athena.shells.own_files import own_directory
from athena.shells.temporary_gateway import Up, Wish

ANY_KEY = "athena"
"""Presented to a gateway that asks for none: agents do not start without a key."""
_NO_UPSTREAM = """no upstream is configured, so there is no model to run the agent on
  a server:    athena code AGENT --base-url URL --api-key-env NAME
  OpenRouter:  export OPENROUTER_API_KEY=...
  set it up:   athena init
  only to see how calls are repaired, without a model: athena code AGENT --demo"""
_QUESTIONS = frozenset(("--version", "-v", "-V", "--help", "-h", "version", "help"))
"""What an agent answers by itself, alone on its command line: no gateway is needed."""
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_ASK_SECONDS = 20.0
"""The gateway asks its upstreams meanwhile, for a few seconds at most."""
_KEPT_LOGS = 20
_LOG_BYTES = 8 * 1024 * 1024
_LONGEST_ANSWER = 32_000


class CanNotRun(AthenaError):
    """The agent could not be started; the message says why and what to do."""

    code = "can_not_run"


class NoUpstream(CanNotRun):
    """There is no model to run the agent on. The demo takes a model's place only where it was asked for."""

    code = "no_upstream"


class AgentGateway(msgspec.Struct, frozen=True):
    """The gateway that a coding agent is pointed at."""

    url: str
    models: tuple[str, ...]
    upstreams: Mapping[str, str] = {}
    """What came of asking each of its upstreams: ok, no_list, refused, unreachable, not_asked."""
    warnings: str = ""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the person wants of the run."""

    url: str | None = None
    """The gateway to use."""
    key: str | None = None
    model: str | None = None
    window: Window = Window()
    """How much the model takes, where the person says it."""
    wish: Wish | None = None
    """A gateway to start for the duration."""
    check: bool = True
    """Do not begin while the upstream cannot be reached or refuses its key."""


def run(
    agent: Agent,
    arguments: Sequence[str],
    choice: RunOptions = RunOptions(),  # noqa: B008  # a value that never changes
    *,
    loaded: Callable[[], Loaded | None] = lambda: None,
    tell: Callable[[str], None] = lambda text: None,
) -> int:
    """Run an agent and give back its exit code. Raises CanNotRun.

    Without a gateway's address and without a wish for one, a gateway that runs on this machine is used, else one is started.
    `loaded` gives the configuration that a gateway started here would have; None: it is at fault, and the gateway says so
    itself. `tell` hears what a person should know before the agent takes the screen, and after it.
    """
    executable = find_executable(agent)
    if len(arguments) == 1 and arguments[0] in _QUESTIONS:
        return run_in_foreground(Launch((executable, *arguments), {}, ()), "")
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="athena-code-")))
        configuration = loaded()
        address = choice.url or _found_or_started(stack, choice, configuration, tell)
        address = address.rstrip("/").removesuffix("/v1")
        key = choice.key or ANY_KEY
        gateway = ask(address, key)
        if choice.check:
            check_upstreams(gateway, tell)
        model = choose_model(agent, choice.model, gateway)
        window = fitting(choice.window.or_else(ask_window(gateway, key, (model,) if model else agent.brings_models)))
        if agent.needs_tokens and window.context is not None and window.context < agent.needs_tokens:
            tell(f"the model takes {window.context} tokens; {agent.title} needs about {agent.needs_tokens} to work well")
        if model and window.context is None and _assumes_too_much(agent, model):
            tell(
                f"how much {model} takes is not known, and {agent.title} assumes {agent.assumes_tokens:,} tokens; "
                "--context TOKENS tells it"
            )
        overlay = None
        if agent.home is not None:
            overlay = home_of_agent(agent, _state_dir(configuration), directory)
            lay_over(agent.home, Path.home(), overlay)
        plan = launch(
            agent,
            executable,
            arguments,
            url=gateway.url,
            key=key,
            model=model,
            directory=directory,
            overlay=overlay,
            window=window,
            environment=os.environ,
            home=Path.home(),
        )
        write_files(plan)
        code = run_in_foreground(plan, gateway.url)
        if agent.resume and sys.stderr.isatty():
            tell(f"to go on with this session on the gateway: {agent.resume}")
        return code


def _found_or_started(
    stack: contextlib.ExitStack, choice: RunOptions, loaded: Loaded | None, tell: Callable[[str], None]
) -> str:
    found = None if choice.wish else running_gateway(loaded)
    if found is not None:
        return found
    wish = choice.wish or Wish()
    if loaded is not None and loaded.is_empty and not wish.demo:
        raise NoUpstream("\n".join((_NO_UPSTREAM, *loaded.hints)))
    configured = loaded.config.log.file if loaded is not None else ""
    log = log_of_run(_state_dir(loaded))
    up = stack.enter_context(started_gateway(wish, log, tell, Path(configured).expanduser() if configured else log))
    if up.demo:
        tell("the built-in demo model answers: it only shows how calls are repaired, and calls only tools that read")
    return up.url


def find_executable(agent: Agent) -> str:
    """The agent's program. Raises CanNotRun, which says how to install it."""
    for name in agent.executables:
        found = shutil.which(name)
        if found:
            return found
    raise CanNotRun(
        f"{agent.title} is not installed: there is no {agent.executables[0]} on the PATH\ninstall it: {agent.install}"
    )


def choose_model(agent: Agent, wanted: str | None, gateway: AgentGateway) -> str:
    """The model to run on: the wanted one, else the first that the gateway lists, else the agent's own choice (empty)."""
    if wanted or agent.brings_models:
        return wanted or ""
    if gateway.models:
        return gateway.models[0]
    if agent.needs_model:
        raise CanNotRun(f"{agent.title} needs a model's name and the gateway lists none\nchoose one: --model NAME")
    return ""


def _assumes_too_much(agent: Agent, model: str) -> bool:
    """Is the model none of its own, and did the person not say how much it takes?"""
    is_said = any(value == "{context}" and name in os.environ for name, value in agent.variables.items())
    return bool(agent.assumes_tokens) and agent.name not in model.lower() and not is_said


def fitting(window: Window) -> Window:
    """A window of which both numbers are known or none: an answer must leave room for what is asked."""
    if window.context is None:
        return Window()
    longest = max(1, window.context // 2)
    return Window(window.context, min(window.output or min(_LONGEST_ANSWER, window.context // 4) or 1, longest))


# -- the gateway -----------------------------------------------------------------------------------------------------------


def _state_dir(loaded: Loaded | None) -> str:
    return loaded.config.state_dir if loaded is not None else os.environ.get("ATHENA_STATE_DIR") or Config().state_dir


def running_gateway(loaded: Loaded | None) -> str | None:
    """The address of a gateway of ours that runs: the one in the background, else one in a terminal. None: there is none.

    Raises NoUpstream where the one in the background has no upstream.
    """
    home = daemon.Home(_state_dir(loaded))
    try:
        state = home.running()
    except daemon.NotRunning:
        return next((state.url for state in home.in_terminals() if state.url and not state.demo), None)
    if state.demo:
        raise NoUpstream(f"the gateway in the background has no upstream (athena stop ends it); {_NO_UPSTREAM}")
    return state.url or None


def log_of_run(state_dir: str) -> Path:
    """Where the gateway of one run logs to. The logs of the last runs are kept."""
    directory = Path(state_dir).expanduser() / "runs"
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        own_directory(directory.parent)
        own_directory(directory)
        for old in sorted(directory.glob("*.log"))[: -_KEPT_LOGS + 1]:
            old.unlink(missing_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="athena-run-")) / name
    return directory / name


@contextlib.contextmanager
def started_gateway(
    wish: Wish, log: Path, tell: Callable[[str], None] = lambda text: None, requests: Path | None = None
) -> Iterator[Up]:
    """A gateway of our own on a free loopback port. What went wrong in it is printed at the end.

    It writes to `log` what it says, and its requests to the file `requests` if its configuration names one.
    """
    requests = requests or log
    already = requests.stat().st_size if requests.exists() else 0
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as errors:
        # A session of its own: Ctrl-C at the terminal is for the agent. -P: a directory named athena where the person happens
        # to be must not be taken for the program.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", temporary_gateway.__name__, msgspec.json.encode(wish).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    with process:
        try:
            yield _announced(process, log)
        finally:
            died = process.poll()
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
    if died is not None:
        tell(f"the gateway ended in the middle of the run (exit code {died}); its log: {log}")
    elif failures := _failures(requests, already):
        tell(f"{failures} in this run; the gateway's log: {requests}\nto find out why: athena doctor")


_FAILED = re.compile(r"\S+ \S+ (?:warning|error) +(?:[0-9]{3}|-) ")
"""The beginning of a text log's line about a request that failed: date, time, level, status."""


def _failures(log: Path, after: int) -> str:
    """How many requests failed, by the log after its first bytes, in words; empty when none did."""
    try:
        with log.open("rb") as file:
            file.seek(after)
            lines = file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    found = sum(1 for line in lines if _FAILED.match(line) or (line.startswith("{") and '"outcome":"error"' in line))
    return "" if not found else "one request failed" if found == 1 else f"{found} requests failed"


def _announced(process: subprocess.Popen[bytes], log: Path) -> Up:
    """What the gateway says when it is up."""
    assert process.stdout is not None
    impatience = threading.Timer(_START_SECONDS, process.kill)
    impatience.start()
    line = process.stdout.readline()
    impatience.cancel()
    if not line:
        process.wait()
        raise CanNotRun(f"the gateway did not start\n{log.read_text('utf-8', 'replace')}".rstrip())
    return _read_up(line)


_read_up = msgspec.json.Decoder(Up).decode


def ask(url: str, key: str) -> AgentGateway:
    """What the gateway offers. Raises CanNotRun when it is not there or refuses the key."""
    try:
        listing, headers = _get(url + "/v1/models", key)
        states = dict(pair.split("=", 1) for pair in headers.get("x-athena-upstreams", "").split(", ") if "=" in pair)
        return AgentGateway(url, tuple(entry["id"] for entry in listing["data"]), states, headers.get("x-athena-warnings", ""))
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise CanNotRun(f"the gateway at {url} asks for a key\ngive it one: --key KEY") from None
        raise CanNotRun(f"the gateway at {url} answers {error.code}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise CanNotRun(f"no gateway answers at {url}: {reason}") from None
    except (ValueError, KeyError, TypeError):
        raise CanNotRun(f"what answers at {url} is no gateway") from None


def check_upstreams(gateway: AgentGateway, tell: Callable[[str], None]) -> None:
    """Raises CanNotRun when no upstream of the gateway can be used; tells of single ones that cannot."""
    failed = [name for name, state in gateway.upstreams.items() if state in ("unreachable", "refused")]
    if not failed:
        return
    if len(failed) < len(gateway.upstreams):
        tell(gateway.warnings)
        return
    raise CanNotRun(
        f"{gateway.warnings}\n"
        "see that the server runs, that its address is right (--base-url, upstreams.*.base_url) and that its key is set "
        "(--api-key-env, upstreams.*.api_key)\n"
        "what exactly is wrong, step by step: athena doctor (with the same --base-url and --api-key-env)\n"
        "to start the agent all the same: --no-check"
    )


def ask_window(gateway: AgentGateway, key: str, models: Sequence[str]) -> Window:
    """How much the models take, the smallest of them; of names that an agent brings, those that lead to another model."""
    windows = []
    for model in models:
        try:
            entry, _ = _get(f"{gateway.url}/v1/models/{urllib.parse.quote(model, safe='/')}", key)
        except (OSError, ValueError):
            continue
        if isinstance(entry, dict) and (len(models) == 1 or "claude" not in str(entry.get("root", "claude")).lower()):
            context, output = entry.get("context_length"), entry.get("max_completion_tokens")
            windows.append(Window(context if isinstance(context, int) else None, output if isinstance(output, int) else None))
    known = [window for window in windows if window.context is not None]
    return min(known, key=lambda window: window.context or 0, default=Window())


def _get(url: str, key: str) -> tuple[Any, Mapping[str, str]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    with opener.open(request, timeout=_ASK_SECONDS) as response:
        return json.load(response), {name.lower(): value for name, value in response.headers.items()}


# -- the agent -------------------------------------------------------------------------------------------------------------


def home_of_agent(agent: Agent, state_dir: str, otherwise: Path) -> Path:
    """Where an agent's home is kept that is laid over the person's own; `otherwise`, where nothing can be kept."""
    place = Path(state_dir).expanduser() / "agents" / agent.name
    try:
        for directory in (place.parent.parent, place.parent, place):
            own_directory(directory)
    except OSError:
        return otherwise
    return place


def write_files(plan: Launch) -> None:
    """The files of a plan, readable by this user only."""
    for path, text in plan.files.items():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)


def run_in_foreground(plan: Launch, url: str) -> int:
    """Run the agent with our own input and output; signals sent to us reach it."""
    environment = {name: value for name, value in os.environ.items() if name not in plan.removed}
    environment.update(plan.variables)
    environment.update(_past_proxies(environment, url))
    with _ForwardedSignals() as signals:
        try:
            signals.process = process = subprocess.Popen(plan.command, env=environment)
        except OSError as error:
            raise CanNotRun(f"{plan.command[0]} cannot be run: {error.strerror or error}") from None
        code = process.wait()
    return code if code >= 0 else 128 - code


class _ForwardedSignals:
    """While it is entered, signals that would end us go to the agent instead; we end when it does."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _ForwardedSignals:
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
            number = getattr(signal, name, None)
            if number is not None:
                self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _forward(self, number: int, _: FrameType | None) -> None:
        # From a terminal the agent has had it already: twice would mean something else to it.
        from_terminal = number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and sys.stdin.isatty()
        if self.process is not None and not from_terminal:
            self.process.send_signal(number)


def _past_proxies(environment: Mapping[str, str], url: str) -> dict[str, str]:
    """A gateway on this machine is reached directly, whatever proxy is set."""
    host = urllib.parse.urlsplit(url).hostname or ""
    if not _is_this_machine(host):
        return {}
    return {name: ",".join(filter(None, (environment.get(name), host))) for name in ("NO_PROXY", "no_proxy")}


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

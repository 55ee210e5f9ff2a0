"""Running a coding agent on a gateway: find or start the gateway, run the agent in the foreground, clean up.

The agent has the terminal: its input, output and exit code are the person's. Nothing of the person's settings is changed, and
nothing that was started here outlives the agent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
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
from athena.shells.config import Config, Loaded
from athena.shells.temporary_gateway import Up, Wish

ANY_KEY = "athena"
"""Presented to a gateway that asks for none: agents do not start without a key."""
_NO_UPSTREAM = """no upstream is configured, so there is no model to run the agent on
  a server:    athena code AGENT --base-url URL --api-key-env NAME
  OpenRouter:  export OPENROUTER_API_KEY=...
  many models: athena config init ~/.config/athena/athena.yml, then edit it
  only to see how calls are repaired, without a model: athena code AGENT --demo"""
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0


class CanNotRun(AthenaError):
    """The agent could not be started; the message says why and what to do."""

    code = "can_not_run"


class NoUpstream(CanNotRun):
    """There is no model to run the agent on. The demo takes a model's place only where it was asked for."""

    code = "no_upstream"


class Gateway(msgspec.Struct, frozen=True):
    """A gateway that answers."""

    url: str
    models: tuple[str, ...]


def run(
    agent: Agent,
    arguments: Sequence[str],
    *,
    url: str | None = None,
    key: str | None = None,
    model: str | None = None,
    wish: Wish | None = None,
    loaded: Loaded | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> int:
    """Run an agent and give back its exit code. Raises CanNotRun.

    `url` names the gateway to use; `wish` starts one for the duration. With neither, the gateway in the background is used if
    there is one, else one is started. `loaded` is the configuration that a gateway started here would have; None: it is at
    fault, and the gateway says so itself. `tell` hears what a person should know before the agent takes the screen.
    """
    executable = find_executable(agent)
    address = url or (None if wish else running_gateway(loaded))
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="athena-code-")))
        if address is None:
            wish = wish or Wish()
            if loaded is not None and loaded.is_empty and not wish.demo:
                raise NoUpstream("\n".join((_NO_UPSTREAM, *loaded.hints)))
            up = stack.enter_context(started_gateway(wish, directory))
            address = up.url
            if up.demo:
                tell("the built-in demo model answers: it only shows how calls are repaired, and calls only tools that read")
        address = address.rstrip("/").removesuffix("/v1")
        gateway = ask(address, key or ANY_KEY)
        plan = launch(
            agent,
            executable,
            tuple(arguments),
            url=gateway.url,
            key=key or ANY_KEY,
            model=choose_model(agent, model, gateway),
            home=str(directory),
        )
        if agent.home is not None:
            lay_over(agent.home, Path.home(), directory)
        return run_in_foreground(plan, gateway.url)


def find_executable(agent: Agent) -> str:
    """The agent's program. Raises CanNotRun, which says how to install it."""
    for name in agent.executables:
        found = shutil.which(name)
        if found:
            return found
    raise CanNotRun(
        f"{agent.title} is not installed: there is no {agent.executables[0]} on the PATH\ninstall it: {agent.install}"
    )


def choose_model(agent: Agent, wanted: str | None, gateway: Gateway) -> str:
    """The model to run on: the wanted one, else the first that the gateway lists, else the agent's own choice (empty)."""
    if wanted or agent.brings_models:
        return wanted or ""
    if gateway.models:
        return gateway.models[0]
    if agent.needs_model:
        raise CanNotRun(f"{agent.title} needs a model's name and the gateway lists none\nchoose one: --model NAME")
    return ""


# -- the gateway -----------------------------------------------------------------------------------------------------------


def running_gateway(loaded: Loaded | None) -> str | None:
    """The address of the gateway in the background; None when there is none. Raises NoUpstream for one without an upstream."""
    state_dir = loaded.config.state_dir if loaded is not None else os.environ.get("ATHENA_STATE_DIR") or Config().state_dir
    try:
        state = daemon.Home(state_dir).running()
    except daemon.NotRunning:
        return None
    if state.demo:
        raise NoUpstream(f"the gateway in the background has no upstream (athena stop ends it); {_NO_UPSTREAM}")
    return state.url or None


@contextlib.contextmanager
def started_gateway(wish: Wish, directory: Path) -> Iterator[Up]:
    """A gateway of our own on a free loopback port."""
    log = directory / "gateway.log"
    with log.open("wb") as errors:
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
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


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
    return msgspec.json.decode(line, type=Up)


def ask(url: str, key: str) -> Gateway:
    """What the gateway offers. Raises CanNotRun when it is not there or refuses the key."""
    try:
        listing = _get(url + "/v1/models", {"authorization": f"Bearer {key}"})
        return Gateway(url, tuple(entry["id"] for entry in listing["data"]))
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise CanNotRun(f"the gateway at {url} asks for a key\ngive it one: --key KEY") from None
        raise CanNotRun(f"the gateway at {url} answers {error.code}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise CanNotRun(f"no gateway answers at {url}: {reason}") from None
    except (ValueError, KeyError, TypeError):
        raise CanNotRun(f"what answers at {url} is no gateway") from None


def _get(url: str, headers: Mapping[str, str]) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=dict(headers)), timeout=5) as response:
        return json.load(response)


# -- the agent -------------------------------------------------------------------------------------------------------------


def run_in_foreground(plan: Launch, url: str) -> int:
    """Run the agent with our own input and output; signals sent to us reach it."""
    environment = {name: value for name, value in os.environ.items() if name not in plan.removed}
    environment.update(plan.variables)
    environment.update(_past_proxies(environment, url))
    with _ForwardedSignals() as signals:
        try:
            signals.process = process = subprocess.Popen(plan.command, env=environment)
        except OSError as error:
            raise CanNotRun(f"{plan.command[0]} can not be run: {error.strerror or error}") from None
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

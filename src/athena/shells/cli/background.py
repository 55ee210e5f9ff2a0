"""`athena start`, `stop`, `status` and `logs`: the gateway in the background."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from athena.errors import AthenaError, ConfigError
from athena.shells.cli.options import config_option, serving_options, sources, tell_ignored

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

    from athena.shells.daemon import DaemonState, Home

_ANSWER_BYTES = 1024 * 1024
_METRICS_BYTES = 8 * 1024 * 1024
_FORGET_S = 10.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """`30s`, `500ms`, `2m`, `1h`, or plain seconds."""

    name = "duration"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no duration such as 30s, 500ms or 2m", parameter, context)
        return float(found.group(1)) * _UNITS[found.group(2)]


@click.command()
@serving_options
@click.option("--demo", is_flag=True, help="Answer with the built-in demo model, whatever is configured.")
@click.option("--wait", type=Duration(), default="5s", show_default=True, help="How long it may take until it listens.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, as athena status --json does.")
def start(config_file: str | None, demo: bool, wait: float, as_json: bool, **flags: Any) -> None:
    """Run the gateway in the background.

    Takes the flags of athena serve. Logs go to athena.log in state_dir (~/.local/state/athena) unless the configuration names
    a file. Only one gateway runs in the background at a time.

    \b
    Examples:
      athena start
      athena start --port 8080 --config team.yml
      athena status
    """
    from athena.shells import daemon
    from athena.shells.config import FLAGS, check_bind, load

    loaded = load(sources(flags, config_file))
    config = loaded.config
    check_bind(config.host, config.keys)
    if 0 < config.port < daemon.LOWEST_PORT:
        raise AthenaError(f"port {config.port} cannot be used in the background: choose 1024 to 65535 (athena serve takes any)")
    for warning in loaded.warnings:
        click.echo(f"athena: warning: {warning}", err=True)
    environment = dict(os.environ)
    if flags.get("api_key") is not None:
        environment[daemon.KEY_VARIABLE] = flags.pop("api_key")
        flags["api_key_env"] = daemon.KEY_VARIABLE
    arguments = [part for key, value in flags.items() if value is not None for part in (FLAGS[key], str(value))]
    arguments += ["--config", config_file] if config_file else []
    arguments += ["--demo"] if demo else []
    state = daemon.launch(daemon.Home(config.state_dir), arguments, environment, wait)
    if as_json:
        click.echo(json.dumps({"running": True, **_fields(state)}))
        return
    click.echo(f"Athena runs in the background on {state.url} (pid {state.pid}); its log: {state.log_file}")
    if demo or loaded.is_empty:
        click.echo("No upstream is configured: the built-in demo model answers.")
        for hint in loaded.hints:
            click.echo(hint)


@click.command()
@config_option
@click.option("--timeout", type=Duration(), default="30s", show_default=True, help="How long open answers may go on.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {stopped, was_running, finished}.")
def stop(config_file: str | None, timeout: float, as_json: bool) -> None:
    """Stop the gateway in the background.

    Open answers finish first; after the timeout the gateway is ended, and its clients are told.

    \b
    Examples:
      athena stop
      athena stop --timeout 2m
    """
    from athena.shells import daemon

    try:
        asked = daemon.stop(_home(config_file), timeout)
    except daemon.NotRunning as nothing:
        stopped = {"stopped": True, "was_running": False, "finished": True}
        click.echo(json.dumps(stopped) if as_json else f"{nothing.message.capitalize()}.")
        return
    if as_json:
        click.echo(json.dumps({"stopped": True, "was_running": True, "finished": asked}))
        return
    click.echo("Athena is stopped." if asked else f"Athena did not stop within {timeout:g} s and was ended.")


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option(
    "--forget",
    "forgotten",
    is_flag=False,
    flag_value="",
    metavar="[UPSTREAM[/MODEL]]",
    help="Forget what was learnt from the refusals of all upstreams, of one, or of one of its models.",
)
def status(config_file: str | None, as_json: bool, forgotten: str | None) -> int:
    """Show the gateways that run on this machine: the one in the background, and yours in terminals.

    With --forget they first forget what they learnt from refusals: the next requests go out whole again. Exit code 0 when one
    runs, 1 when none does or one did not forget.

    \b
    Examples:
      athena status
      athena status --json | jq .port
      athena status --forget
      athena status --forget openrouter/moonshotai/kimi-k3
    """
    from athena.shells import daemon

    home = _home(config_file)
    found: list[tuple[str, DaemonState]] = []
    with contextlib.suppress(daemon.NotRunning):
        found.append(("background", home.running()))
    found += [("terminal", state) for state in home.in_terminals()]
    refused = False
    for _, state in found if forgotten is not None else ():
        failure = _forget(state, home, forgotten or "", quiet=as_json)
        if failure:
            refused = True
            click.echo(f"athena: {state.url} did not forget: {failure}", err=True)
    seen = [(where, state, _ready_answer(state.url)) for where, state in found]
    counts = {state.pid: _counts(state.url) for _, state in found}
    if as_json:
        entries = [
            {
                "ready": said is not None,
                **_fields(state),
                "learnt": (said or {}).get("learnt", []),
                "routes": (said or {}).get("routes", []),
                "upstreams": (said or {}).get("upstreams", {}),
                "counts": counts[state.pid],
            }
            for _, state, said in seen
        ]
        own = entries.pop(0) if seen and seen[0][0] == "background" else {}
        click.echo(json.dumps({"running": bool(seen), **own, **({"terminals": entries} if entries else {})}))
    elif not seen:
        click.echo(
            "No gateway runs here, neither in the background nor in a terminal; athena serve or athena start starts one."
        )
    for where, state, said in () if as_json else seen:
        _show_state(where, state, said, counts[state.pid])
    return 0 if seen and not refused else 1


def _forget(state: DaemonState, home: Home, which: str, *, quiet: bool) -> str:
    """Have a gateway forget what it learnt, and say so; why it did not, otherwise."""
    import urllib.error
    import urllib.request

    from athena.shells.recorder.token import inspector_token

    upstream, _, model = which.partition("/")
    headers = {"content-type": "application/json", "authorization": f"Bearer {inspector_token(home.directory)}"}
    body = json.dumps({"upstream": upstream, "model": model}).encode()
    try:
        with _opener().open(urllib.request.Request(f"{state.url}/learnt/forget", body, headers), timeout=_FORGET_S) as answer:
            said = json.loads(answer.read(_ANSWER_BYTES))
        lessons, workers = said["forgotten"], said["workers"]
    except urllib.error.HTTPError as error:
        with error:
            return _printable(_message_of(error.read(_ANSWER_BYTES)) or f"it answered {error.code}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _printable(str(error)) or "it does not answer"
    if not quiet:
        click.echo(f"{state.url} forgot {len(lessons)} {'lesson' if len(lessons) == 1 else 'lessons'}")
    if workers > 1:
        click.echo(
            f"athena: it has {workers} server processes that each learn for themselves, and one of them forgot; "
            f"kill -HUP {state.pid} reloads all of them and makes them forget everything",
            err=True,
        )
    return ""


def _message_of(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


_COUNTED = {
    "athena_requests_total": "requests",
    "athena_tool_calls_total": "tool_calls",
    "athena_leaked_answers_total": "leaked_answers",
    "athena_repairs_total": "repaired_calls",
    "athena_open_streams": "open_streams",
}
"""Metrics of which `status` shows the sum, and what it calls them."""
_SAMPLE = re.compile(r"^(athena_\w+)(?:\{([^}\n]*)\})? (\d+(?:\.\d+)?)", re.MULTILINE)


def _counts(url: str) -> dict[str, int]:
    """What a gateway has counted since its start; nothing where it does not tell (`metrics` off, or only with a key)."""
    try:
        with _opener().open(f"{url}/metrics", timeout=2) as answer:
            text = answer.read(_METRICS_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    counts = dict.fromkeys((*_COUNTED.values(), "failed_requests"), 0)
    for name, labels, number in _SAMPLE.findall(text):
        if name in _COUNTED:
            counts[_COUNTED[name]] += int(float(number))
        if name == "athena_requests_total" and 'outcome="ok"' not in labels:
            counts["failed_requests"] += int(float(number))
    return counts


def _show_state(where: str, state: DaemonState, said: dict[str, Any] | None, counts: dict[str, int]) -> None:
    place = "the background" if where == "background" else "a terminal"
    click.echo(f"Athena runs on {state.url} in {place}, {'ready' if said is not None else 'not ready'}")
    click.echo(f"  pid        {state.pid}" + (f", version {state.version}" if state.version else ""))
    click.echo(f"  since      {state.start_time} ({_span(state.uptime_s)})")
    click.echo(f"  config     {state.config_path or '(no file)'}")
    upstreams = (said or {}).get("upstreams")
    if isinstance(upstreams, dict) and upstreams:
        click.echo("  upstreams  " + ", ".join(f"{name} ({'up' if up else 'left out'})" for name, up in upstreams.items()))
    if counts:
        failed, streams = counts["failed_requests"], counts["open_streams"]
        click.echo(f"  requests   {counts['requests']}, of which {failed} failed; {streams} streams open")
        click.echo(
            f"  calls      {counts['tool_calls']} delivered; read from leaked text in {counts['leaked_answers']} answers; "
            f"{counts['repaired_calls']} had broken arguments repaired"
        )
    if state.log_file:
        click.echo(f"  log        {state.log_file}")
    for route in (said or {}).get("routes", []):
        click.echo("  answers    " + _printable(_route_words(route)))
    for lesson in (said or {}).get("learnt", []):
        model = f"{lesson['upstream']}/{lesson['model']}"
        text = f"{model} refuses {lesson['feature']} (tried again in {_span(lesson['expires_s'])})"
        click.echo("  learnt     " + _printable(text))


def _route_words(route: dict[str, Any]) -> str:
    """`lab/kimi-k2 left out: 40 answers lately, 6 invalid_json, 2 cut; 3 good canaries so far`."""
    out = route["state"] == "out"
    counted = ", ".join((f"{route['answers']} answers lately", *(f"{n} {name}" for name, n in route["found"].items())))
    canaries = f"; {route['good_canaries']} good canaries so far" if out else ""
    return f"{route['upstream']}/{route['model']} {'left out' if out else 'in use'}: {counted}{canaries}"


def _printable(text: str) -> str:
    """Text as it may go to a terminal: models are named by clients, whatever is in their names."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _fields(state: DaemonState) -> dict[str, Any]:
    return {**{name: getattr(state, name) for name in state.__struct_fields__}, "uptime_s": round(state.uptime_s, 1)}


@click.command()
@config_option
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(0), default=50, show_default=True, help="How many lines to begin with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line; a line of text is its member line.")
def logs(config_file: str | None, follow: bool, lines: int, as_json: bool) -> None:
    """Show the log of the gateway in the background.

    \b
    Examples:
      athena logs
      athena logs -f
      athena logs -n 1000 | grep warning
      athena logs --json | jq .line
    """
    from athena.shells import daemon

    home = _home(config_file)
    state = home.read()
    file = Path(state.log_file) if state is not None and state.log_file else home.log_file
    if not file.exists() and not follow:
        raise AthenaError(f"there is no log yet at {file}")
    for line in daemon.tail(file, lines):
        click.echo(_log_record(line) if as_json else line)
    if not follow:
        return
    unfinished = ""
    try:
        for text in daemon.follow(file):
            if not as_json:
                click.echo(text, nl=False)
                continue
            *finished, unfinished = (unfinished + text).split("\n")
            for line in finished:
                click.echo(_log_record(line))
    except KeyboardInterrupt:
        return


def _log_record(line: str) -> str:
    """A line of a log as one JSON object: as it is where `log.format` is json, else as its text."""
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            json.loads(line)
            return line
    return json.dumps({"line": line})


def _home(config_file: str | None) -> Home:
    """The directory of the background process. A broken configuration must not keep it from being stopped."""
    from athena.shells import daemon
    from athena.shells.config import Config, load

    try:
        loaded = load(sources({}, config_file))
        tell_ignored(loaded)
        return daemon.Home(loaded.config.state_dir)
    except ConfigError:
        return daemon.Home(os.environ.get("ATHENA_STATE_DIR") or Config().state_dir)


def _opener() -> OpenerDirector:
    """Asks gateways whose state files lie in our own directory, and no proxy in between."""
    import ssl
    import urllib.request

    # They run on this machine, where the certificate's name need not fit and nobody else can take their place.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def _ready_answer(url: str) -> dict[str, Any] | None:
    """What the gateway says about itself; None while it takes no requests."""
    try:
        with _opener().open(f"{url}/ready", timeout=2) as answer:
            said = json.loads(answer.read(_ANSWER_BYTES))
            return said if isinstance(said, dict) else {}
    except (OSError, ValueError):
        return None


def _span(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60) % 60, int(seconds // 3600) % 24, int(seconds // 86400)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"

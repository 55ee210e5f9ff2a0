"""Every wrong step of docs/wrong_steps.toml is made for real, and the message says what the troubleshooting page promises."""

from __future__ import annotations

import json
import socket
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import athena as library
from athena.shells import cli
from support.athena_process import Serving, serving
from support.gateway_process import free_port
from support.patience import PATIENCE

STEPS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parents[2] / "docs" / "wrong_steps.toml").read_text("utf-8"))
ASKED = {
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
}
UPSTREAM = "upstreams:\n  mine: {base_url: http://127.0.0.1:9/v1}\n"


# -- on the command line ---------------------------------------------------------------------------------------------------


class Shell:
    """A person's shell in a home of their own, in which commands run inside this process."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._patch = patch
        self._capture = capture
        for name in ("OPENROUTER_API_KEY", "HTTPS_PROXY", "https_proxy", "ATHENA_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", str(home / "bin"))
        patch.chdir(home)

    def set(self, name: str, value: str) -> None:
        self._patch.setenv(name, value)

    def writes(self, name: str, text: str) -> None:
        (self.home / name).write_text(text)

    def runs(self, *arguments: str, code: int = 1) -> str:
        """What the command prints; its exit code must be `code`."""
        self._patch.setattr("sys.argv", ["athena", *arguments])
        assert cli.main() == code
        printed = self._capture.readouterr()
        return printed.out + printed.err


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def _checks(text: str, *more: str) -> Callable[[Shell], str]:
    """The step is an athena.yml with this text."""

    def step(shell: Shell) -> str:
        shell.writes("athena.yml", text)
        return shell.runs("config", "check", "athena.yml", *more)

    return step


def _serves(text: str) -> Callable[[Shell], str]:
    def step(shell: Shell) -> str:
        shell.writes("config.yaml", text)
        return shell.runs("serve", "--port", "0", "--config", "config.yaml")

    return step


def _wrong_format(shell: Shell) -> str:
    shell.writes("answer.txt", "hello")
    return shell.runs("parse", "--format", "hermse", "answer.txt")


def _untrusted(shell: Shell) -> str:
    shell.writes("athena.yml", UPSTREAM)
    return shell.runs("models")


def _busy_port(shell: Shell) -> str:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        return shell.runs("serve", "--demo", "--port", str(other.getsockname()[1]))


def _proxied(shell: Shell) -> str:
    shell.set("HTTPS_PROXY", "http://proxy.invalid:3128")
    shell.writes("athena.yml", UPSTREAM.replace("http://127.0.0.1:9", "https://models.invalid"))
    return shell.runs("config", "check", "athena.yml", code=0)


def _plain_text(shell: Shell) -> str:
    shell.writes("answer.txt", '{"city": "Tokyo"}')
    return shell.runs("parse", "answer.txt", code=0)


def _bytes(shell: Shell) -> str:
    answer: Any = b"<tool_call>"
    with pytest.raises(TypeError) as error:
        library.parse(answer)
    return str(error.value)


COMMANDS: dict[str, Callable[[Shell], str]] = {
    "misspelled-command": lambda shell: shell.runs("srve", code=2),
    "misspelled-option": lambda shell: shell.runs("serve", "--prot", "9000", code=2),
    "misspelled-format": _wrong_format,
    "misspelled-key": _checks("upstreams:\n  mine: {base_url: http://127.0.0.1:9/v1, apikey: x}\n"),
    "tabs-in-yaml": _checks("upstreams:\n\tmine: {}\n"),
    "litellm-file": _serves("model_list:\n  - model_name: m\n    litellm_params: {model: openai/m}\n"),
    "claude-code-router-file": _serves('{"Providers": [{"name": "a", "api_base_url": "http://a/v1"}], "Router": {}}'),
    "address-without-scheme": _checks("upstreams:\n  mine: {base_url: 127.0.0.1:8000/v1}\n"),
    "unknown-upstream": _checks(UPSTREAM + "models: [{match: '*', use: local/qwen}]\n"),
    "untrusted-file": _untrusted,
    "variable-not-set": lambda shell: shell.runs("serve", "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "MY_KEY"),
    "no-upstream": lambda shell: shell.runs("models"),
    "port-in-use": _busy_port,
    "open-to-the-network": lambda shell: shell.runs("serve", "--host", "0.0.0.0", "--port", "0"),
    "agent-not-installed": lambda shell: shell.runs("code", "claude"),
    "proxy-variable": _proxied,
    "nothing-to-parse": _plain_text,
    "bytes-instead-of-text": _bytes,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_to_do(name: str, shell: Shell) -> None:
    said = " ".join(COMMANDS[name](shell).split())
    for text in STEPS[name]["says"]:
        assert text in said


# -- through the gateway ---------------------------------------------------------------------------------------------------


class _Wrong(BaseHTTPRequestHandler):
    """A server that is not what the person takes it for: what it is stands first in the path."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, kind, body = {
            "locked": (401, "application/json", b'{"error": {"message": "No auth credentials found"}}'),
            "nothing": (404, "text/plain", b"404 page not found"),
            "page": (200, "text/html", b"<!DOCTYPE html><html><body>Welcome</body></html>"),
        }[self.path.split("/")[1]]
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One gateway for all rows: each wrong upstream has a model of its name. The demo model is behind no other name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Wrong)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    place = f"127.0.0.1:{server.server_address[1]}"
    upstreams = {
        "bare": {"base_url": f"http://{place}/locked/v1"},
        "keyed": {"base_url": f"http://{place}/locked/v1", "api_key": "sk-wrong-0123456789"},
        "astray": {"base_url": f"http://{place}/nothing"},
        "page": {"base_url": f"http://{place}/page"},
        "secure": {"base_url": f"https://{place}/v1"},
        "down": {"base_url": f"http://127.0.0.1:{free_port()}/v1"},
        "nowhere": {"base_url": "http://no-such-host.invalid/v1"},
    }
    models = [{"match": name, "use": f"{name}/m"} for name in upstreams]
    config = {"upstreams": upstreams, "models": models, "retries": {"attempts": 0}, "timeouts": {"connect_s": PATIENCE}}
    try:
        with serving(tmp_path_factory.mktemp("home"), "--log-format", "json", config=config) as running:
            yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


GATEWAY = {
    "no-key": "bare",
    "wrong-key": "keyed",
    "wrong-base-url": "astray",
    "web-page": "page",
    "https-instead-of-http": "secure",
    "server-not-running": "down",
    "misspelled-host": "nowhere",
    "unknown-model": "gpt-99",
}
"""Wrong steps that show when a client asks, and the model that it asks for."""


@pytest.mark.parametrize("name", GATEWAY)
@pytest.mark.parametrize("stream", [False, True])
def test_the_client_and_the_log_get_the_remedy(name: str, stream: bool, gateway: Serving) -> None:
    said = _post(gateway.url + "/v1/messages", {"model": GATEWAY[name], "stream": stream, **ASKED})
    message = json.loads(said)["error"]["message"]
    for text in STEPS[name]["says"]:
        assert text in message
        assert gateway.says(text), "the log says the same"
    assert "sk-wrong" not in message


PATHS = {"misspelled-path": ["/v1/mesages"], "doubled-version": ["/v1/v1/messages", "/messages"]}


@pytest.mark.parametrize("name", PATHS)
def test_obvious_spellings_are_served_or_corrected(name: str, tmp_path: Path) -> None:
    with serving(tmp_path, "--demo") as demo:
        for path in PATHS[name]:
            said = _post(demo.url + path, {"model": "any", **ASKED})
            assert all(text in said for text in STEPS[name]["says"])
        for path in ("/healthz", "/livez", "/readyz"):
            with urllib.request.urlopen(demo.url + path, timeout=PATIENCE) as answer:
                assert answer.status == 200


def _post(url: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def test_every_row_is_tried() -> None:
    assert set(COMMANDS) | set(GATEWAY) | set(PATHS) == set(STEPS)
    assert len(STEPS) >= 20
    for name, row in STEPS.items():
        assert {"title", "did", "says", "remedy"} == set(row), name

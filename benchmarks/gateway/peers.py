"""Other gateways, measured when they are installed in `.peers`; `--install` puts them there, in the versions named here.

Each has one OpenAI-compatible provider, the fake upstream, one worker, and otherwise its defaults. They do unequal work:
LiteLLM, for one, checks keys and tracks costs.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.systems import Launch, Place, System

HOME = Path(__file__).parents[2] / ".peers"


@dataclass(frozen=True)
class Package:
    """One peer to install."""

    name: str
    requirement: str
    program: str
    """Below `.peers`; it exists once the peer is installed."""

    @property
    def path(self) -> Path:
        """The program."""
        return HOME / self.program

    def install(self) -> None:
        """From PyPI into an environment of its own, or from npm."""
        HOME.mkdir(exist_ok=True)
        print(f"bench: installing {self.requirement} into .peers", file=sys.stderr)
        if self.program.startswith("node_modules"):
            if shutil.which("npm") is None:
                raise CannotMeasure(f"{self.name} comes from npm, which is not installed")
            command = ["npm", "install", "--prefix", str(HOME), "--no-audit", "--no-fund", "--loglevel=error", self.requirement]
        else:
            folder = self.path.parents[1]
            venv.create(folder, with_pip=True)
            command = [
                str(folder / "bin/python"),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                self.requirement,
            ]
        if subprocess.run(command, check=False).returncode or not self.path.exists():
            raise CannotMeasure(f"{self.requirement} could not be installed")


LITELLM = Package("litellm", "litellm[proxy]==1.106.2", "litellm/bin/litellm")
ROSETTA = Package("rosetta", "llm-rosetta[gateway]==0.13.0", "rosetta/bin/llm-rosetta-gateway")
ROUTER = Package("ccr", "@musistudio/claude-code-router@2.0.0", "node_modules/@musistudio/claude-code-router/dist/cli.js")
PORTKEY = Package("portkey", "@portkey-ai/gateway@1.15.2", "node_modules/@portkey-ai/gateway/build/start-server.js")
PACKAGES = {package.name: package for package in (LITELLM, ROSETTA, ROUTER, PORTKEY)}

MUTABLE_HEADERS = """\
// Portkey 1.15 on Node 20 writes to the headers of fetch() answers, which are immutable: hand it copies.
const original = globalThis.fetch;
globalThis.fetch = async (...given) => {
  const got = await original(...given);
  return new Response(got.body, { status: got.status, statusText: got.statusText, headers: new Headers(got.headers) });
};
"""


def _litellm(place: Place) -> Launch:
    provider = {"api_base": f"{place.upstream}/v1", "api_key": "sk-x"}
    settings = {
        "model_list": [
            {"model_name": name, "litellm_params": {"model": f"openai/{name}", **provider}} for name in place.models
        ],
        "litellm_settings": {"use_chat_completions_url_for_anthropic_messages": True, "telemetry": False},
    }
    file = place.folder / "config.yaml"
    file.write_text(json.dumps(settings))
    key = "sk-" + secrets.token_hex(24)  # it does not start without one
    environment = {
        "HOME": str(place.folder),
        "LITELLM_MASTER_KEY": key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_USE_CHAT_COMPLETIONS_URL_FOR_ANTHROPIC_MESSAGES": "true",
        "NO_PROXY": "127.0.0.1",
        "PATH": f"{LITELLM.path.parent}:{os.environ['PATH']}",
    }
    command = [str(LITELLM.path), "--config", str(file), "--host", "127.0.0.1", "--port", str(place.port)]
    return Launch([*command, "--num_workers", "1", "--telemetry", "False"], environment, (f"Authorization: Bearer {key}",))


def _rosetta(place: Place) -> Launch:
    settings = {
        "providers": {"openai_chat": {"api_key": "sk-x", "base_url": f"{place.upstream}/v1"}},
        "models": dict.fromkeys(place.models, "openai_chat"),
        "server": {"host": "127.0.0.1", "port": place.port, "open_on_no_keys": True},
    }
    file = place.folder / "config.jsonc"
    file.write_text(json.dumps(settings))
    command = [str(ROSETTA.path), "--config", str(file), "--no-banner", "--host", "127.0.0.1", "--port", str(place.port)]
    return Launch([*command, "--data-dir", str(place.folder), "--log-level", "error"], {"HOME": str(place.folder)})


def _router(place: Place) -> Launch:
    provider = {
        "name": "fake",
        "api_base_url": f"{place.upstream}/v1/chat/completions",
        "api_key": "sk-x",
        "models": list(place.models),
    }
    settings = {
        "LOG": False,
        "HOST": "127.0.0.1",
        "PORT": place.port,
        "NON_INTERACTIVE_MODE": True,
        "API_TIMEOUT_MS": 600_000,
        "Providers": [provider],
        "Router": {"default": f"fake,{place.models[0]}"},
    }
    folder = place.folder / ".claude-code-router"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    environment = {"HOME": str(place.folder), "SERVICE_PORT": str(place.port)}
    return Launch(["node", str(ROUTER.path), "start"], environment, model_prefix="fake,")


def _portkey(provider: str) -> Callable[[Place], Launch]:
    def launch(place: Place) -> Launch:
        preload = place.folder / "mutable_headers.cjs"
        preload.write_text(MUTABLE_HEADERS)
        headers = (
            f"x-portkey-provider: {provider}",
            f"x-portkey-custom-host: {place.upstream}/v1",
            "Authorization: Bearer sk-x",
        )
        environment = {
            "HOME": str(place.folder),
            "NODE_ENV": "production",
            "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost",
        }
        command = ["node", "-r", str(preload), str(PORTKEY.path), "--headless", f"--port={place.port}"]
        return Launch(command, environment, headers)

    return launch


PEERS = {
    system.name: system
    for system in (
        System("litellm-msg", "messages", _litellm, slow=True),
        System("litellm-chat", "chat", _litellm, slow=True),
        System("rosetta-msg", "messages", _rosetta, slow=True),
        System("rosetta-chat", "chat", _rosetta, slow=True),
        System("ccr", "messages", _router, slow=True),
        System("portkey-chat", "chat", _portkey("openai"), slow=True),
        System("portkey-ant", "chat", _portkey("anthropic"), slow=True),
    )
}
"""`-ant`: Chat clients, Anthropic upstream."""


def installed(name: str) -> bool:
    """Can this system be started here?"""
    return PACKAGES[name.partition("-")[0]].path.exists()


def add_install_option(parser: argparse.ArgumentParser) -> None:
    """Peers are never installed unasked."""
    parser.add_argument("--install", action="store_true", help="install the peers named, or all, into .peers first")


def install(names: list[str]) -> None:
    """Those of these systems that are missing; one that cannot be had does not keep the others out."""
    for package in dict.fromkeys(PACKAGES[name.partition("-")[0]] for name in names):
        if not package.path.exists():
            try:
                package.install()
            except CannotMeasure as problem:
                print(f"bench: {problem}", file=sys.stderr)

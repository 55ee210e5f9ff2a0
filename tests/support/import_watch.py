"""Run as a program: `athena serve` in this process, asked once for everything; prints the modules that requests imported.

Usage: python import_watch.py CONFIG_FILE MODEL...
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from athena.shells.config import Sources, load
from athena.shells.server import Plan, Started, serve
from support.fault_judge import read_answer, request_body, request_bytes
from support.patience import PATIENCE


def ask_everything(started: Started, models: list[str], before: set[str]) -> None:
    """Every model in every dialect (`as-...`: in one), streamed and whole; then what has been imported meanwhile."""
    problems: list[str] = []
    for model in models:
        clients = (
            ("openai_chat",) if model.startswith("as-") else ("openai_chat", "anthropic_messages", "openai_responses", "gemini")
        )
        for client in clients:
            for stream in (True, False):
                path, body = request_body(client, model, stream=stream)
                with socket.create_connection(("127.0.0.1", started.port), PATIENCE) as sock:
                    sock.sendall(request_bytes(path, body))
                    answer = read_answer(sock)
                if not answer.status:
                    problems.append(f"{model} {client}: no answer")
    sys.stdout.write(json.dumps({"imported": sorted(set(sys.modules) - before), "problems": problems}) + "\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def main(file: str, *models: str) -> int:
    def on_started(started: Started) -> None:
        before = set(sys.modules)
        threading.Thread(target=ask_everything, args=(started, list(models), before), daemon=True).start()

    home = Path(file).parent
    sources = Sources(environment={}, home=home, directory=home, config_file=Path(file))
    loaded: Any = load(sources)
    return serve(Plan(sources=sources, loaded=loaded, on_started=on_started))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""A model behind all four dialects that says what it was told: whoever loses or doubles a part of a conversation is found out.

Its last user message decides what it does. "use the tool X" calls the one tool that is offered with that word; any other text
is answered with everything that it has heard: the user's words, the results of its calls, and how often it has spoken itself.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from support.scripted_upstream import ScriptedUpstream
from support.tool_loops import Entry, history, spoken_answer
from support.upstream_talk import Talk

UPSTREAMS = {
    "chat": "openai_chat",
    "claude": "anthropic_messages",
    "responses": "openai_responses",
    "gemini": "gemini",
}
"""Names of upstreams and their dialects: a client asks for `<name>/model`."""
_PROFILES = {"gemini": {"profile": "gemini"}, "claude": {"profile": "anthropic"}, "native": {"profile": "openai_responses"}}
SUMMARY = "They counted to"
"""How the summary begins that it writes when it is asked for one."""


class RememberingUpstream(ScriptedUpstream):
    """One model for all dialects."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: list[dict[str, Any]] = []
        """Of the requests that it answered."""
        self.native: list[tuple[str, str]] = []
        """Method and path of requests for what it keeps itself."""
        self._open = threading.Event()
        self._open.set()
        self.broken = False
        """Every answer is a failure."""

    def close_gate(self) -> None:
        """Let answers wait until the gate is opened."""
        self._open.clear()

    def open_gate(self) -> None:
        self._open.set()

    async def answer_elsewhere(self, talk: Talk) -> None:
        if not talk.path.startswith("/v1/responses/"):
            await super().answer_elsewhere(talk)
            return
        self.native.append((talk.method, talk.path))
        await talk.whole(json.dumps({"object": "native", "path": talk.path}).encode())

    async def answer(self, talk: Talk) -> None:
        if self.broken:
            await talk.whole(b'{"error": {"message": "it is broken", "type": "server_error"}}', "500 X")
            return
        self.answered.append(talk.body)
        while not self._open.is_set():
            await asyncio.sleep(0.01)
        said = history(talk.dialect, talk.body)
        text, calls = reply(said, len(self.answered))
        kind = "text/event-stream" if talk.stream else "application/json"
        await talk.whole(spoken_answer(talk.dialect, talk.stream, text, calls, len(self.answered)), kind=kind)


def reply(said: list[Entry], number: int) -> tuple[str, list[tuple[str, str, dict[str, Any]]]]:
    """What it says to a conversation: text, and calls."""
    last = said[-1]
    if last.kind == "user" and last.text.startswith("use the tool "):
        return "I will.", [(f"call_{number}", "look_up", {"word": last.text.split()[-1]})]
    if last.kind == "user" and last.text.startswith("Write a summary"):
        return f"{SUMMARY} {sum(entry.kind == 'user' for entry in said) - 1}.", []
    heard = " | ".join(entry.text for entry in said if entry.kind in ("user", "result"))
    return f"heard {heard}; spoke {sum(entry.kind == 'text' for entry in said)}", []


def config(upstream: RememberingUpstream, **settings: Any) -> dict[str, Any]:
    """A gateway in front of it, under all four dialects."""
    return {
        "upstreams": {
            name: {"base_url": upstream.url, "dialect": dialect, "api_key": "sk-upstream-0123456789", **_PROFILES.get(name, {})}
            for name, dialect in {**UPSTREAMS, "native": "openai_responses"}.items()
        },
        "models": [
            {"match": "native/*", "use": "native/*"},
            {"match": "small/*", "use": "chat/*", "context": 20_000},
            *({"match": f"{name}/*", "use": f"{name}/*"} for name in UPSTREAMS),
        ],
        "retries": {"attempts": 0},
        "envelope_key": "test",
        **settings,
    }

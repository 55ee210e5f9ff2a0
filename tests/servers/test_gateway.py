"""The official SDKs through Athena onto a real server: two turns with tools, whole and streamed, over its three APIs.

`native`: the server parses its model's text. `raw`: it is told not to, so that the template's own markup arrives as text, and
its grammar comes from a file, so that the text holds whole calls. A tap keeps the server's own bytes, which decide what the
client should have got. A cell is one client's way of asking over one API of the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from athena import parse
from servers.conftest import Scores
from servers.llama_server import CHAT_TOOLS, TEMPLATES, TOOLS, USER, Family, LlamaServer, Refused
from servers.sdk_turns import CLIENTS, Loop
from servers.upstream_tap import Asked, Call, UpstreamTap, chat_parts
from support.canonical import Seen
from support.gateway_process import GatewayProcess
from support.patience import until
from support.sdks import is_sdk_error

pytestmark = pytest.mark.servers

PROFILES = {"chat": "llama_cpp", "messages": "llama_cpp_anthropic", "responses": "llama_cpp_responses"}
CELLS = [(api, client, stream) for api in PROFILES for client in CLIENTS for stream in (False, True)]
CHOICES = ("now", "required", "none")


class Place(msgspec.Struct, frozen=True):
    """The gateway, and its two upstreams."""

    url: str
    native: UpstreamTap
    raw: UpstreamTap

    def tap(self, way: str) -> UpstreamTap:
        return self.native if way == "native" else self.raw


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One gateway for all templates: each is a model of its own, so that nothing learnt of one counts for another."""
    with UpstreamTap() as native, UpstreamTap() as raw:
        upstreams = {
            f"{way}_{api}": {"base_url": f"http://127.0.0.1:{tap.port}/v1", "profile": profile}
            for way, tap in (("native", native), ("raw", raw))
            for api, profile in PROFILES.items()
        }
        rules = [{"match": f"{up}-{name}", "use": f"{up}/{name}"} for up in upstreams for name in TEMPLATES]
        config = {"upstreams": upstreams, "models": rules, "envelope_key": "test"}
        gateway = GatewayProcess(config, tmp_path_factory.mktemp("gateway"))
        try:
            yield Place(gateway.url, native, raw)
        finally:
            gateway.stop()


@pytest.mark.parametrize("name", TEMPLATES)
def test_native_calls_arrive_in_both_turns(
    name: str, family: Callable[[str], Family], place: Place, judged: list[dict[str, Any]], scores: Scores
) -> None:
    reasons = {row["outcome"]: row["reason"] for row in judged if row["test"] == "native" and row["template"] == name}
    unused, wrong = set(reasons), []
    with family(name).served() as server:
        place.native.behind = server.port
        for cell in CELLS:
            for turn, outcome, remark in turns("native", cell, name, place, lambda asked: asked.calls()):
                if outcome in reasons:
                    unused.discard(outcome)
                    outcome, remark = "judged", reasons[outcome]
                scores.count(f"native, turn {turn}", outcome, remark and f"{name}, {cell}: {remark}")
                wrong += [(cell, turn)] * outcome.isupper()
    assert not wrong
    assert not unused, "judged, and not so any more"


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_in_raw_text_arrive_in_both_turns(
    name: str, family: Callable[[str], Family], place: Place, judged: list[dict[str, Any]], scores: Scores
) -> None:
    reasons = {row["outcome"]: row["reason"] for row in judged if row["test"] == "raw" and row["template"] == name}
    unused, wrong = set(reasons), []
    made = family(name)
    with made.served() as server:
        body = {"messages": [USER], "tools": CHAT_TOOLS, "tool_choice": "required", "verbose": True}
        try:
            said = server.post("/v1/chat/completions", body)["__verbose"]["generation_settings"]
        except Refused as error:
            pytest.skip(f"no grammar: {error}")
        # The server lays its own grammars over the end of the prompt too, and those from files over the answer alone.
        grammar = grammar_behind(said["generation_prompt"], said["grammar"])
        if grammar is None:
            pytest.skip(f"the grammar does not begin with {said['generation_prompt']!r}")
        file = made.directory / f"{name}.gbnf"
        file.write_text(grammar, encoding="utf-8")
        with made.served("--skip-chat-parsing", "--grammar-file", str(file)) as raw:
            place.raw.behind = raw.port
            for cell in CELLS:
                for turn, outcome, remark in turns("raw", cell, name, place, lambda asked: own_parse(server, asked)):
                    if outcome in reasons:
                        unused.discard(outcome)
                        outcome, remark = "judged", reasons[outcome]
                    scores.count(f"raw, turn {turn}", outcome, remark and f"{name}, {cell}: {remark}")
                    wrong += [(cell, turn)] * outcome.isupper()
    assert not wrong
    assert not unused, "judged, and not so any more"


_ROOT = re.compile(r"^root ::= (.*)$", re.MULTILINE)
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[\w-]+|[()|?*+]|\{[^}]*\}')


def grammar_behind(prompt: str, grammar: str) -> str | None:
    """The grammar of what follows a prompt, where it describes the prompt too; None when it does not begin with it.

    A group that may be left out, and in which the prompt goes on, has begun: what is left of it must follow. What the grammar
    leaves open (`until`) takes the rest of the prompt.
    """
    root = _ROOT.search(grammar)
    if root is None:
        return None
    pieces = _PIECES.findall(root.group(1))
    while prompt and pieces:
        piece = pieces.pop(0)
        optional = pieces[:1] == ["?"]
        if piece == "(":
            close = _closing(pieces)
            if close < 0:
                return None
            del pieces[close : close + 1 + (pieces[close + 1 : close + 2] == ["?"])]
        elif piece == "space":
            prompt = prompt.lstrip(" \n")
        elif piece.startswith("until"):
            pieces.insert(0, piece)
            break
        elif piece.startswith('"'):
            text = json.loads(piece)
            del pieces[: int(optional)]
            if text.startswith(prompt) and text != prompt:
                pieces.insert(0, json.dumps(text.removeprefix(prompt), ensure_ascii=False))
                prompt = ""
            elif prompt.startswith(text):
                prompt = prompt.removeprefix(text)
            elif not optional:
                return None
        else:
            return None
    left = "".join(piece if piece[0] in "?*+{" else f" {piece}" for piece in pieces)
    return f"{grammar[: root.start()]}root ::={left}{grammar[root.end() :]}"


def _closing(pieces: list[str]) -> int:
    """Where the group ends that was opened before these; -1 when it has several alternatives."""
    depth = 1
    for place, piece in enumerate(pieces):
        depth += (piece == "(") - (piece == ")")
        if not depth:
            return place
        if depth == 1 and piece == "|":
            break
    return -1


def own_parse(server: LlamaServer, asked: Asked) -> list[Call] | None:
    """The server's own reading of a raw answer: the same request, parsed and forced. None when it wrote something else.

    Only its Chat API shows what it wrote.
    """
    if not asked.path.endswith("chat/completions"):
        return None
    body = {**asked.body, "tool_choice": "required", "verbose": True}
    body.pop("stream", None)
    try:
        again = server.post(asked.path, body)
    except Refused:
        return None
    return chat_parts([again])[0] if again["__verbose"]["content"] == asked.text() else None


def turns(
    way: str, cell: tuple[str, str, bool], name: str, place: Place, expected: Callable[[Asked], list[Call] | None]
) -> Iterator[tuple[int, str, str]]:
    """Each turn's number, outcome (in capitals: wrong) and what there is to say about it."""
    api, client, stream = cell
    loop = Loop(client, place.url, f"{way}_{api}-{name}", stream=stream)
    for turn in (1, 2):
        before = len(place.tap(way).asked)
        seen, error = asked_once(client, loop)
        assert until(place.tap(way).is_quiet)
        if len(place.tap(way).asked) == before:
            yield turn, "NEVER ASKED", repr(error)
            return
        asked = place.tap(way).asked[-1]
        if asked.failed():
            yield turn, "refused by the server" if error else "AN ERROR HIDDEN", f"{asked.answer[-200:]} / {error!r}"
            return
        if asked.is_cut():
            yield turn, "cut at the limit", ""
            return
        calls, judge = expected(asked), "the server"
        if calls is None:
            calls, judge = library_parse(name, asked.text()), "the library"
        if seen is None:
            yield turn, "AN ERROR", f"{error!r} for {calls!r} in {asked.answer[-1500:]!r}"
            return
        got = pairs(seen)
        if got != calls:
            yield turn, "OTHER CALLS", f"{got!r} for {calls!r} in {asked.text()!r}"
            return
        if not calls:
            yield turn, "no call", ""
            return
        yield turn, f"equal to {judge}", ""


def library_parse(name: str, text: str) -> list[Call]:
    """What `athena.parse` makes of a text; `test_streams` compares that with the server."""
    return [(call.name, json.loads(call.arguments)) for call in parse(text, model=name, tools=CHAT_TOOLS).calls]


def pairs(seen: Seen | None) -> list[Call]:
    """The calls that a client got."""
    return [(piece.text, piece.arguments) for piece in seen.calls()] if seen is not None else []


def asked_once(client: str, loop: Loop) -> tuple[Seen | None, Exception | None]:
    """The answer, or the SDK's own error."""
    try:
        return loop.ask(), None
    except Exception as error:
        if not is_sdk_error(client, error):
            raise
        return None, error


FORCED = [name for name in TEMPLATES if name in ("Qwen-Qwen3-0.6B", "deepseek-ai-DeepSeek-V3.1", "LFM2.5-8B-A1B")]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", FORCED)
def test_a_forced_choice_is_honoured_or_an_error(
    name: str, choice: str, family: Callable[[str], Family], place: Place, scores: Scores
) -> None:
    wrong = []
    with family(name).served() as server:
        place.native.behind = server.port
        for api, client, stream in CELLS:
            loop = Loop(client, place.url, f"native_{api}-{name}", stream=stream, choice=choice)
            seen, error = asked_once(client, loop)
            names = {piece.text for piece in seen.calls()} if seen is not None else set()
            honoured = {"required": bool(names), "none": not names}.get(choice, names == {choice})
            outcome = "an error" if seen is None else "honoured" if honoured else "BROKEN"
            scores.count(
                f"choice {choice}",
                outcome,
                f"{name}, {api}, {client}, {stream}: {names} {error!r}"[:400] * (outcome != "honoured"),
            )
            wrong += [(api, client, stream)] * (outcome == "BROKEN")
    assert {tool["name"] for tool in TOOLS} >= {"now"}
    assert not wrong

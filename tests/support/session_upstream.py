"""A model behind all four dialects that real coding agents work with over a whole session, and that lets no fault pass.

It reads the file that a person asks about, several times in a row, through whatever tool the agent offers, and then tells the
word in it. The path of a request decides its dialect. What an API of that dialect would refuse is refused and kept in `faults`:
a result without its call, a call without its result, an id that two calls share, a message without content. The Chat model has
the template of Qwen 3.5 and later: one system message, and that in front. Such refusals are kept apart, in `late`, because they
are to be mended before the agent sees one.
"""

from __future__ import annotations

import json
import re
from typing import Any

from support.scripted_agent_upstream import WORD, fitting_arguments, reading_tool
from support.scripted_upstream import ScriptedUpstream
from support.tool_loops import Entry, history, spoken_answer
from support.upstream_speech import encode
from support.upstream_talk import Talk

DIALECTS = {
    "openai_chat": "/chat/completions",
    "anthropic_messages": "/messages",
    "openai_responses": "/responses",
    "gemini": "generatecontent",
}
"""How the path of each dialect ends, in small letters."""
STEPS = 4
"""How often the file is read before the word is told."""
QUESTION = "Read the file {path} and tell me the word in it."
_ASKED = re.compile(r"Read the file (\S+) and tell me the word in it\.")
_LATE = "System message must be at the beginning."


Kept = dict[str, dict[str, Any]]
"""Requests with all that was said, by the id of the last answer: some clients leave their conversations with the provider."""


class SessionUpstream(ScriptedUpstream):
    """One model for all sessions of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        """Dialect and body of every request that was answered."""
        self.raw: list[bytes] = []
        """The same bodies as they came."""
        self.faults: list[str] = []
        self.late: list[dict[str, Any]] = []
        """Requests that were refused for a system message behind the first."""
        self.kept: Kept = {}

    async def answer(self, talk: Talk) -> None:
        body = talk.body
        path = talk.path.partition("?")[0].lower()
        dialect = next((name for name, end in DIALECTS.items() if path.endswith(end)), "")
        if not dialect:
            await talk.whole(b'{"error": {"message": "no such path"}}', "404 X")
            return
        if dialect == "openai_chat" and any(message["role"] == "system" for message in body["messages"][1:]):
            self.late.append(body)
            await talk.whole(encode({"error": {"message": _LATE, "type": "BadRequestError", "code": 400}}), "400 X")
            return
        said = _conversation(dialect, body, self.kept)
        if said is None:
            await talk.whole(b'{"error": {"message": "no such conversation", "type": "not_found_error"}}', "404 X")
            return
        faults = faults_of(dialect, said)
        if faults:
            self.faults += faults
            await talk.whole(encode({"error": {"message": "; ".join(faults), "type": "invalid_request_error"}}), "400 X")
            return
        self.requests.append((dialect, body))
        self.raw.append(talk.raw_body)
        stream = "stream" in path if dialect == "gemini" else bool(body.get("stream"))
        number = len(self.requests)
        _keep(dialect, said, json.loads(answer(dialect, said, False, number)), self.kept)
        await talk.whole(answer(dialect, said, stream, number), kind="text/event-stream" if stream else "application/json")

    answer_elsewhere = answer  # clients may ask below any prefix


# -- conversations that the provider keeps -------------------------------------------------------------------------------------


def _conversation(dialect: str, body: dict[str, Any], kept: Kept) -> dict[str, Any] | None:
    """The request with all that was said before; None where that is not known."""
    if dialect == "openai_responses" and body.get("previous_response_id"):
        before = kept.get(body["previous_response_id"])
        return None if before is None else {**body, "input": [*before["input"], *_items(body)]}
    if dialect == "anthropic_messages" and (body.get("thread") or {}).get("type") == "continue":
        # A thread keeps the tools as well.
        before = kept.get(body["thread"]["previous_message_id"])
        return None if before is None else {**before, **body, "messages": [*before["messages"], *body["messages"]]}
    return body


def _keep(dialect: str, said: dict[str, Any], answered: dict[str, Any], kept: Kept) -> None:
    if dialect == "openai_responses":
        kept[answered["id"]] = {**said, "input": [*_items(said), *answered["output"]]}
    elif dialect == "anthropic_messages" and said.get("thread"):
        turn = {"role": "assistant", "content": answered["content"]}
        kept[answered["id"]] = {**said, "messages": [*said["messages"], turn]}


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


# -- the model ---------------------------------------------------------------------------------------------------------------


def answer(dialect: str, body: dict[str, Any], stream: bool, number: int) -> bytes:
    """One more reading of the file, or the word in it; `number` tells this answer from others."""
    entries = history(dialect, body)
    asked = [(position, found) for position, entry in enumerate(entries) for found in _ASKED.findall(str(entry.text))]
    tool = reading_tool(offered(dialect, body))
    if not asked or tool is None:
        return spoken_answer(dialect, stream, "A word in a file", [], number)
    position, path = asked[-1]
    results = [entry for entry in entries[position:] if entry.kind == "result"]
    words = [word for entry in results for word in WORD.findall(json.dumps(entry.text))]
    if len(results) >= STEPS:
        return spoken_answer(dialect, stream, f"The word is {words[-1] if words else 'not there'}.", [], number)
    # As some servers do, it counts its calls from the beginning in every conversation it is shown.
    count = sum(entry.kind == "call" for entry in entries)
    call = (f"call_{dialect}_{count}", tool["name"], fitting_arguments(tool, path))
    return spoken_answer(dialect, stream, f"Reading, the {len(results) + 1}. time.", [call], number)


def offered(dialect: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The functions that the model may call, each with `name` and `parameters`."""
    tools = body.get("tools") or []
    match dialect:
        case "openai_chat":
            return [tool["function"] for tool in tools if tool["type"] == "function"]
        case "anthropic_messages":
            return [{"name": tool["name"], "parameters": tool["input_schema"]} for tool in tools if "input_schema" in tool]
        case "openai_responses":
            return [tool for tool in tools if tool["type"] == "function"]
        case _:
            declared = [entry for tool in tools for entry in tool.get("functionDeclarations") or ()]
            schemas = ("parametersJsonSchema", "parameters_json_schema", "parameters")  # SDKs write both cases
            return [{**entry, "parameters": next((entry[name] for name in schemas if name in entry), {})} for entry in declared]


# -- what no API takes ---------------------------------------------------------------------------------------------------------


def faults_of(dialect: str, body: dict[str, Any]) -> list[str]:
    """What is wrong with the history of a request."""
    entries = history(dialect, body)
    faults = [
        f"{dialect}: a {entry.kind} without text" for entry in entries if entry.kind in ("user", "text") and not entry.text
    ]
    calls = [entry for entry in entries if entry.kind == "call"]
    results = [entry for entry in entries if entry.kind == "result"]
    if dialect == "gemini":
        # Calls of Gemini are known by their order and name; ids may be missing. Gemini CLI itself tells each result twice in a
        # session that it goes on with, which at home is left to the API.
        told = [
            result for number, result in enumerate(results) if number == 0 or not result.id or result != results[number - 1]
        ]
        if [call.name for call in calls] != [result.name for result in told]:
            faults.append("gemini: calls and results do not go together")
        return faults
    ids = [call.id for call in calls]
    if len(set(ids)) < len(ids):
        faults.append(f"{dialect}: two calls share an id")
    if sorted(ids) != sorted(result.id for result in results):
        faults.append(f"{dialect}: calls and results do not go together")
    faults += [f"{dialect}: a result stands before its call" for result in results if not _is_behind(result, entries)]
    return faults


def _is_behind(result: Entry, entries: list[Entry]) -> bool:
    position = entries.index(result)
    return any(entry.kind == "call" and entry.id == result.id for entry in entries[:position])

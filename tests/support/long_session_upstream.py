"""A model that reads one file fifty times and counts what it is shown, so that a client's window fills and it compacts."""

from __future__ import annotations

import json
import re
from typing import Any

from support.scripted_agent_upstream import WORD, fitting_arguments, reading_tool
from support.session_upstream import DIALECTS, SessionUpstream, faults_of, offered
from support.tool_loops import history, spoken_answer
from support.upstream_speech import encode
from support.upstream_talk import Talk

_ASKED = re.compile(r"Read the file (\S+) and tell me the word in it\.")
_COUNTED = re.compile(rb'("(?:input_tokens|prompt_tokens|promptTokenCount)": ?)10\b')
_TOTAL = re.compile(rb'("(?:total_tokens|totalTokenCount)": ?)15\b')


class LongSessionUpstream(SessionUpstream):
    """Asked without tools it writes a summary, which is the question."""

    def __init__(self, readings: int) -> None:
        super().__init__()
        self.readings = readings
        self.read = 0
        self.summaries = 0
        self.told: list[int] = []
        """The tokens of each request, as it was told."""

    async def answer(self, talk: Talk) -> None:
        body = talk.body
        path = talk.path.partition("?")[0].lower()
        dialect = next((name for name, end in DIALECTS.items() if path.endswith(end)), "")
        if not dialect:
            await talk.whole(b'{"error": {"message": "no such path"}}', "404 X")
            return
        faults = faults_of(dialect, body)
        self.faults += faults
        if faults:
            await talk.whole(encode({"error": {"message": "; ".join(faults), "type": "invalid_request_error"}}), "400 X")
            return
        self.requests.append((dialect, body))
        stream = "stream" in path if dialect == "gemini" else bool(body.get("stream"))
        said = self._speak(dialect, body, stream)
        tokens = len(talk.raw_body) // 4
        self.told.append(tokens)
        said = _COUNTED.sub(rb"\g<1>%d" % tokens, said)
        said = _TOTAL.sub(rb"\g<1>%d" % (tokens + 5), said)
        await talk.whole(said, kind="text/event-stream" if stream else "application/json")

    def _speak(self, dialect: str, body: dict[str, Any], stream: bool) -> bytes:
        entries = history(dialect, body)
        asked = [found for entry in entries for found in _ASKED.findall(str(entry.text))]
        tool = None if _forbids_calls(body) else reading_tool(offered(dialect, body))
        number = len(self.requests)
        if not asked:
            return spoken_answer(dialect, stream, "A word in a file", [], number)
        if tool is None:
            self.summaries += 1
            summary = f"Read the file {asked[-1]} and tell me the word in it. It was read {self.read} times."
            return spoken_answer(dialect, stream, summary, [], number)
        words = [word for entry in entries if entry.kind == "result" for word in WORD.findall(json.dumps(entry.text))]
        if self.read >= self.readings and words:
            return spoken_answer(dialect, stream, f"The word is {words[-1]}.", [], number)
        self.read += 1
        call = (f"call_{dialect}_{self.read}", tool["name"], fitting_arguments(tool, asked[-1]))
        return spoken_answer(dialect, stream, f"Reading, the {self.read}. time.", [call], number)

    answer_elsewhere = answer


def _forbids_calls(body: dict[str, Any]) -> bool:
    choice = body.get("tool_choice")
    mode = ((body.get("toolConfig") or {}).get("functionCallingConfig") or {}).get("mode")
    return choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none") or mode == "NONE"

"""A Chat upstream that plays a model for real coding agents: it reads a file through whatever tool the agent offers.

The path stands in the person's question and the word in the file, so the word can only come back through a tool call that
worked. The model name in the request decides how the call is written (`FORMS`), and a suffix what else is odd about it
(`:twice`, `:cut`). Answers come in small pieces, cut without regard to tokens, so that markers and JSON are split anywhere.

The model of the form `prompted` knows no tools: it refuses a request with any trace of them, and reads those that are taught in
the text of its prompt, in the lines that `docs/prompted-tools.md` promises. It reads them by itself, not with Athena's code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from support.scripted_upstream import ScriptedUpstream
from support.upstream_speech import chat_stream, chat_whole, encode
from support.upstream_talk import Talk

FORMS: Mapping[str, str] = {
    "native": "vendor/native-model",
    "kimi-content": "moonshotai/kimi-k2-0905",
    "kimi-reasoning": "moonshotai/kimi-k2-thinking",
    "qwen-function-call": "qwen/qwen2.5-72b-instruct",
    "hermes": "nousresearch/hermes-4-70b",
    "prompted": "vendor/model-without-tools",
}
"""How the upstream writes its call, and the model name it goes by."""

WORD = re.compile(r"SECRET-[0-9a-f]{12}")
_PATH = re.compile(r"/[\w/.-]*secret\.txt")
_READERS = ("read", "read_file", "view_file", "cat", "read_files")
_SHELLS = ("bash", "shell", "exec_command", "run_shell_command", "exec")
_PIECE = 7
_REFUSAL = {
    "error": {
        "message": f"{FORMS['prompted']} does not support tools",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
}


class ScriptedAgentUpstream(ScriptedUpstream):
    """One model for all clients of a test."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []
        self.cut: set[str] = set()
        """The files whose reading was cut off once."""

    async def answer(self, talk: Talk) -> None:
        body = talk.body
        self.requests.append(body)
        if is_refused(body):
            await talk.whole(encode(_REFUSAL), "400 X")
            return
        deltas, finish = answer(body)
        path = _asked_path(body["messages"])
        if body["model"].endswith(":cut") and offered_tools(body) and path and path not in self.cut:
            self.cut.add(path)
            deltas, finish = deltas[: len(deltas) * 3 // 4], ""
        frames = chat_stream(deltas, finish, model=body["model"])
        if not finish:
            frames = frames[:-3]  # cut off: the connection ends well, the answer does not
        await talk.say(frames, chat_whole(_message(deltas), finish, model=body["model"]))


def _message(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """What the deltas add up to."""
    message: dict[str, Any] = {"content": None}
    for delta in deltas:
        for name, value in delta.items():
            if name == "tool_calls":
                (piece,) = value
                calls = message.setdefault("tool_calls", [])
                if "id" in piece:
                    calls.append({"id": piece["id"], "type": "function", "function": dict(piece["function"])})
                else:
                    calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
            elif name == "function_call":
                call = message.setdefault("function_call", {"name": "", "arguments": ""})
                for part, text in value.items():
                    call[part] += text
            else:
                message[name] = (message.get(name) or "") + value
    return message


# -- the model -------------------------------------------------------------------------------------------------------------


def answer(body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The answer to a Chat request as deltas, and its finish reason."""
    messages = body["messages"]
    results = tool_results(body)
    words = [found for _, text in results for found in WORD.findall(text)]
    if words:
        return _pieces("content", f"The word is {words[-1]}."), "stop"
    path = _asked_path(messages)
    tool = reading_tool(offered_tools(body))
    if not path or tool is None or results:
        return _pieces("content", "There is nothing to read."), "stop"
    oddity = body["model"].partition(":")[2]
    return _calls(_form(body), tool["name"], fitting_arguments(tool, path), times=2 if oddity == "twice" else 1)


def is_refused(body: Mapping[str, Any]) -> bool:
    """Does the request show tools, or a history of them, to the model that knows none?"""
    if _form(body) != "prompted":
        return False
    traces = any(message["role"] == "tool" or "tool_calls" in message for message in body["messages"])
    return traces or any(field in body for field in ("tools", "tool_choice", "parallel_tool_calls"))


def offered_tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The functions that the model may call: those of the request, or those taught in its prompt."""
    if _form(body) != "prompted":
        return [tool["function"] for tool in body.get("tools") or ()]
    return [line for line in _json_lines(body, "system") if line.keys() >= {"name", "description", "parameters"}]


def tool_results(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(id of the call, text) of every result the model was given."""
    if _form(body) != "prompted":
        results = [message for message in body["messages"] if message["role"] == "tool"]
        return [(message["tool_call_id"], _text(message["content"])) for message in results]
    lines = _json_lines(body, "user")
    return [(line["tool_call_id"], str(line["result"])) for line in lines if line.keys() >= {"tool_call_id", "result"}]


def _form(body: Mapping[str, Any]) -> str:
    model = body["model"].partition(":")[0]
    return next(form for form, name in FORMS.items() if name == model)


def _json_lines(body: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    """The JSON objects that stand on lines of their own in the messages of one role."""
    texts = [_text(message["content"]) for message in body["messages"] if message["role"] == role]
    found: list[dict[str, Any]] = []
    for line in "\n".join(texts).split("\n"):
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # somebody's example or code
    return found


def _asked_path(messages: list[dict[str, Any]]) -> str:
    texts = [_text(message["content"]) for message in messages if message["role"] == "user"]
    found = [match.group() for text in texts for match in _PATH.finditer(text)]
    return found[-1] if found else ""


def _calls(form: str, name: str, arguments: dict[str, Any], times: int) -> tuple[list[dict[str, Any]], str]:
    text = json.dumps(arguments)
    if form == "native":
        deltas = _pieces("content", "I will read it.")
        for index in range(times):
            function = {"name": name, "arguments": ""}
            deltas.append({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]})
            deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in _cut(text)]
        return deltas, "tool_calls"
    if form == "qwen-function-call":
        deltas = []
        for _ in range(times):
            deltas.append({"function_call": {"name": name, "arguments": ""}})
            deltas += [{"function_call": {"arguments": piece}} for piece in _cut(text)]
        return deltas, "function_call"
    if form == "prompted":
        return _pieces("content", json.dumps([{"name": name, "parameters": arguments}] * times)), "stop"
    if form == "hermes":
        call = json.dumps({"name": name, "arguments": arguments})
        return _pieces("content", "I will read it." + f"\n<tool_call>\n{call}\n</tool_call>" * times), "stop"
    calls = "".join(
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{text}<|tool_call_end|>"
        for index in range(times)
    )
    section = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"
    return _pieces("reasoning_content" if form == "kimi-reasoning" else "content", f"I will read it. {section}"), "stop"


def _pieces(field: str, text: str) -> list[dict[str, Any]]:
    return [{field: piece} for piece in _cut(text)]


def _cut(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content)
    return content or ""


def reading_tool(tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The tool that reads a file, else the one that runs a command; a name may stand behind that of its group."""
    functions = {tool["name"].lower().rpartition("__")[2]: tool for tool in tools}
    return next((functions[name] for name in (*_READERS, *_SHELLS) if name in functions), None)


def fitting_arguments(tool: dict[str, Any], path: str) -> dict[str, Any]:
    """Arguments with which that tool reads the file."""
    schema = tool.get("parameters") or {}
    properties: dict[str, Any] = schema.get("properties") or {}
    filled = {name: _filler(properties.get(name) or {}) for name in schema.get("required") or ()}
    for name in properties:
        plain = name.lower().replace("_", "")
        if plain in ("command", "cmd"):
            filled[name] = f"cat {path}"
        elif plain in ("filepath", "path", "absolutepath"):
            filled[name] = path
        elif plain == "files":  # Cline's list of places to read
            filled[name] = [{"path": path}]
        elif plain == "input":  # Codex's free-form tool, which takes a program
            filled[name] = f'const done = await tools.exec_command({{cmd: "cat {path}"}});\ntext(done.output);'
    return filled


def _filler(schema: dict[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    return {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}.get(
        str(schema.get("type")), "read the file"
    )

"""llama.cpp's server as a process, on tiny models that are steered into the markers of one chat template.

A model is made twice: first with nothing but the template's markers as tokens, so that the server itself can render the
template and cut its text into tokens; then with those tokens likely to follow each other, so that the model begins calls as
the template writes them. From the marker on the server's own grammar forces the rest of a call, whose values are random.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from support.gateway_process import free_port
from support.patience import PATIENCE

PLACE = Path(__file__).parents[2] / ".servers"
SOURCE = PLACE / "source" / "vendor" / "llama.cpp"
TEMPLATES = {file.stem: file for file in sorted((SOURCE / "models" / "templates").glob("*.jinja"))}

_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
"""The kernel ends the server with these tests, also when a signal ends them that no `finally` sees."""

BEGIN, END = "<s>", "<|endoftext|>"
SEED = 7
STRONG, WEAK = 16.0, 8.0
"""Logits of pairs near a marker, and of all others that the template writes."""
ENDS = 6.0
"""Logit of what ends an answer or a value, behind any token: a fifth of the weight of all other tokens together."""
CITY = "Lisbon"
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("get_weather", {"city": CITY, "unit": "celsius", "days": 3}),
    ("note", {"tags": ["sun"], "done": True}),
    ("now", {}),
]
"""Calls whose renderings steer the model."""
_MARKERS = re.compile(
    r"<\|[^|<>\s{}]{1,40}\|>|<｜[^｜<>\s{}]{1,40}｜>|｜DSML｜|<\|[a-z_:]{3,30}>|<[a-z_:]{3,30}\|>|</?[A-Za-z_][\w:.-]{1,30}>|\[/?[A-Z_]{3,30}\]"
)

TOOLS: list[dict[str, Any]] = [
    {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 16},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            },
            "required": ["city", "unit", "days"],
            "additionalProperties": False,
        },
    },
    {
        "name": "note",
        "description": "Keep a note.",
        "parameters": {
            "type": "object",
            "properties": {
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
                "done": {"type": "boolean"},
                "place": {
                    "type": "object",
                    "properties": {"line": {"type": "integer", "minimum": 0, "maximum": 99}, "near": {"type": "number"}},
                    "required": ["line"],
                    "additionalProperties": False,
                },
            },
            "required": ["tags", "done"],
            "additionalProperties": False,
        },
    },
    {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
]
"""Small values, so that random ones come to an end."""
CHAT_TOOLS = [{"type": "function", "function": tool} for tool in TOOLS]
USER = {"role": "user", "content": "How is the weather?"}


def chat_call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call in a Chat history; its id is one that every template takes."""
    written = json.dumps(arguments, ensure_ascii=False)
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": written}}


class Refused(Exception):
    """The server answered with an error; templates raise errors of their own."""


class LlamaServer:
    """A running server with one slot; use as a context manager. Equal requests get equal answers."""

    def __init__(self, model: Path, template: Path, directory: Path, *flags: str) -> None:
        self.port = free_port()
        self.log = directory / f"server-{self.port}.log"
        command = [str(PLACE / "build" / "bin" / "llama-server"), "--model", str(model), "--alias", template.stem]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--chat-template-file", str(template), "--jinja"]
        command += ["--ctx-size", "32768", "--parallel", "1", "--threads", "1", "--no-warmup", "--seed", str(SEED)]
        command += [
            "--cache-ram",
            "0",
            "--samplers",
            "temperature",
            "--temp",
            "1",
            "--predict",
            "400",
            "--no-prefill-assistant",
            *flags,
        ]
        self._command = [*_DIES_WITH_US, *command]

    def __enter__(self) -> LlamaServer:
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Refused(f"the server did not start: {self.log.read_text(errors='replace')[-2000:]}")
            try:
                if self.get("/health") == {"status": "ok"}:
                    return
            except (OSError, Refused):
                time.sleep(0.02)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def get(self, path: str) -> Any:
        return json.loads(self._exchange("GET", path, None))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer's JSON. Raises `Refused`."""
        return json.loads(self._exchange("POST", path, body))

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The records of a stream. Raises `Refused`, also for an error inside it."""
        data = self._exchange("POST", path, {**body, "stream": True}).decode()
        lines = [line.removeprefix("data: ") for line in data.splitlines() if line.startswith(("data: ", "error: "))]
        if any(line.startswith("error: ") for line in lines):
            raise Refused(lines[-1])
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise Refused(f"{answer.status} {data.decode(errors='replace')}")
        return data

    def render(self, *messages: dict[str, Any], generate: bool = True) -> str:
        """What the template makes of a conversation."""
        body = {"messages": messages, "tools": CHAT_TOOLS, "add_generation_prompt": generate}
        return str(self.post("/apply-template", body)["prompt"])

    def tokens(self, text: str) -> list[int]:
        """The text's tokens, markers included."""
        return list(self.post("/tokenize", {"content": text, "parse_special": True})["tokens"])


def answer_in(server: LlamaServer, assistant: dict[str, Any], before: tuple[dict[str, Any], ...] = (USER,)) -> tuple[str, str]:
    """A prompt, and the turn that the template writes behind it for an assistant's message."""
    prompt = server.render(*before)
    full = server.render(*before, assistant, generate=False)
    # A thought that the prompt opens is often left out of a history: then the answer is one that begins without it.
    for opened in (prompt, _OPENS_THOUGHT.sub("", prompt)):
        if full.startswith(opened):
            return opened, full[len(opened) :]
    same = next(at for at, (one, other) in enumerate(zip(prompt, full, strict=False)) if one != other)
    if re.search(r"<[^<>\s]*$", full[:same]):
        same = full.rindex("<", 0, same)
    return full[:same], full[same:]


def turn_end(server: LlamaServer) -> str:
    """What the template writes behind the last word of an answer."""
    try:
        return answer_in(server, {"role": "assistant", "content": "Yes."})[1].rpartition("Yes.")[2].strip()
    except Refused:
        return ""


class ModelMaker:
    """The process that makes models; use as a context manager."""

    def __enter__(self) -> ModelMaker:
        python = PLACE / "environment" / "bin" / "python"
        program = Path(__file__).parent / "tiny_model.py"
        self._process = subprocess.Popen(
            [str(python), str(program), "models", str(PLACE / "vocabulary.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=PATIENCE)

    def make(
        self, out: Path, markers: list[str], pairs: list[tuple[int, int, float]], everywhere: list[tuple[int, float]]
    ) -> None:
        wish = {"seed": SEED, "out": str(out), "markers": markers, "begin": BEGIN, "end": END}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**wish, "pairs": pairs, "everywhere": everywhere}) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n", "the model could not be made"


class Family(msgspec.Struct, frozen=True):
    """A chat template and a model that writes as it does."""

    name: str
    template: Path
    model: Path
    directory: Path

    @contextmanager
    def served(self, *flags: str) -> Iterator[LlamaServer]:
        with LlamaServer(self.model, self.template, self.directory, *flags) as server:
            yield server


def make_family(name: str, maker: ModelMaker, directory: Path) -> Family:
    """A template's model. Raises `Refused` when the server does not take the template, or the template no tools."""
    template = TEMPLATES[name]
    markers = [*dict.fromkeys([BEGIN, END, *_MARKERS.findall(template.read_text(encoding="utf-8"))])]
    plain, steered = directory / f"{name}-plain.gguf", directory / f"{name}.gguf"
    maker.make(plain, markers, [], [])
    with LlamaServer(plain, template, directory) as server:
        ways = []
        for call in EXAMPLES:
            message = {"role": "assistant", "content": "", "tool_calls": [chat_call(1, *call)]}
            prompt, answer = answer_in(server, message)
            ways.append(straight(prompt, answer))
        chains = [server.tokens(way) for way in ways]
        if CITY not in ways[0]:
            raise Refused(f"the template writes no arguments: {ways[0]!r}")
        closer = server.tokens(ways[0].partition(CITY)[2])[0]
        first_marker, end = server.tokens(BEGIN)[0], server.tokens(END)[0]
        opening = prompt.removeprefix(server.render(USER, generate=False))
    plain.unlink()
    # What ends every prompt is a token of its own, so that what follows it follows nothing else.
    ending = opening if 0 < len(opening) < len(prompt) else prompt[-30:]
    if ending not in markers:
        markers.append(ending)
    pairs: dict[tuple[int, int], float] = {}
    for chain in chains:
        pairs[first_marker + markers.index(ending), chain[0]] = STRONG
        for place, pair in enumerate(pairwise([*chain, end])):
            is_near = max(chain[max(0, place - 2) : place + 3]) >= first_marker
            pairs[pair] = max(pairs.get(pair, 0), STRONG if is_near else WEAK)
    maker.make(steered, markers, [(*pair, logit) for pair, logit in pairs.items()], [(end, ENDS), (closer, ENDS)])
    return Family(name, template, steered, directory)


def straight(prompt: str, answer: str) -> str:
    """The shortest way from a prompt to the call of an answer: no thought, and one that the prompt opened is closed at once."""
    pattern = r"^\s*(?:<think>.*?)?(?=</think>)" if opens_thought(prompt) else r"^\s*<think>.*?</think>\s*"
    return re.sub(pattern, "", without_end(answer), flags=re.DOTALL).strip()


_TURN_ENDS = re.compile(
    r"\s*(?:<\|(?:endoftext|im_end|eot_id|eom_id|end_of_text|calls?|return|end|flush|message_sep)\|>|<end_of_turn>|<turn\|>"
    r"|<\|tool_response>|<\|END_OF_TURN_TOKEN\|>(?:<\|START_OF_TURN_TOKEN\|><\|CHATBOT_TOKEN\|>)?|<end_of_sentence>|<｜hy_eos[^｜]*｜>|</s>|<eos>"
    r"|<｜end▁of▁sentence｜>|\[EOS\]|\[EOT\]|\[e~\[)\s*$"
)
_OPENS_THOUGHT = re.compile(
    r"(?:<think>|<seed:think>|<\|think\|>|\[THINK\]|<\|START_THINKING\|>|<\|channel>thought|<mm:think>)\s*$"
)


def without_end(answer: str, end: str = "") -> str:
    """An answer as the server sends it: the token that ends a turn is no text, and a turn behind it another answer."""
    answer = answer.partition("<｜end▁of▁sentence｜>")[0]
    return _TURN_ENDS.sub("", answer.rstrip().removesuffix(end) if end else answer)


def opens_thought(prompt: str) -> bool:
    """Does the prompt begin the model's reasoning, so that the answer begins inside it?"""
    return _OPENS_THOUGHT.search(prompt) is not None

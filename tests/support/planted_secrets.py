"""Secrets of many kinds and in many writings, planted wherever a client or an upstream can say something, and the search for
what is left of them."""

from __future__ import annotations

import base64
import binascii
import html
import json
import random
import re
import string
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

_CODE = string.ascii_letters + string.digits
_NAMES = (
    "Ottilie",
    "Kasimir",
    "Berengar",
    "Walburga",
    "Zdenka",
    "Thorvald",
    "Joaquina",
    "Przemysław",
    "Grünhild",
    "Иннокентий",
)


class Secret(msgspec.Struct, frozen=True):
    """What nobody may read, and the parts of it that would give it away."""

    kind: str
    text: str
    needles: tuple[str, ...]


class Planter:
    """Makes secrets, no two alike, and remembers them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.planted: list[tuple[str, Secret]] = []

    def at(self, place: str, *, written: bool = True) -> str:
        """A new secret for this place, in some writing that a reader can undo; `written=False`: as it is."""
        secret = self.dice.choice(_KINDS)(self)
        self.planted.append((place, secret))
        return self.dice.choice(_WRITINGS)(secret.text) if written else secret.text

    def number(self, place: str) -> int:
        """A number that is a secret: of a card, a telephone, a person."""
        digits = self.digits(self.dice.choice((9, 11, 15, 16)))
        self.planted.append((place, Secret("number", digits, (digits,))))
        return int(digits)

    def identifier(self, place: str) -> str:
        """A secret that may stand in a name."""
        code = self.code(24)
        self.planted.append((place, Secret("identifier", code, (code,))))
        return code

    def code(self, length: int, letters: str = _CODE) -> str:
        """A random word with digits in it."""
        return "".join(self.dice.choice(letters) for _ in range(length - 2)) + self.digits(2)

    def digits(self, length: int) -> str:
        """A random number that begins with no zero."""
        return self.dice.choice("123456789") + "".join(self.dice.choice("0123456789") for _ in range(length - 1))


def _keyed(prefix: str, length: int, letters: str = _CODE) -> Callable[[Planter], Secret]:
    def made(planter: Planter) -> Secret:
        code = planter.code(length, letters)
        return Secret(prefix, prefix + code, (code,))

    return made


def _basic(planter: Planter) -> Secret:
    code = planter.code(12)
    text = base64.b64encode(f"joe:{code}".encode()).decode()
    return Secret("basic", f"Authorization: Basic {text}", (code, text.rstrip("=")))


def _jwt(planter: Planter) -> Secret:
    name = planter.code(10)
    parts = [json.dumps({"alg": "HS256", "kid": name}), json.dumps({"sub": name}), planter.code(32)]
    coded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return Secret("jwt", ".".join(coded), (name, coded[2]))


def _pem(planter: Planter) -> Secret:
    lines = [planter.code(64) for _ in range(3)]
    text = "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----"])
    return Secret("pem", text, tuple(lines))


def _url(planter: Planter) -> Secret:
    password, token = planter.code(14), planter.code(20)
    return Secret("url", f"https://svc:{password}@db.example/v1?key={token}#x", (password, token))


def _mail(planter: Planter) -> Secret:
    who = planter.dice.choice(_NAMES).lower() + "." + planter.code(6, string.ascii_lowercase)
    return Secret("mail", f"{who}@{planter.code(7, string.ascii_lowercase)}.example.org", (who,))


def _kept_mail(planter: Planter) -> Secret:
    """Of words that markers and APIs have, all of them."""
    words = ("test", "user", "pro", "call", "search", "llama", "book", "super")
    who = ".".join(planter.dice.sample(words, 4))
    return Secret("mail of words", f"{who}@http.org", (who,))


def _person(planter: Planter) -> Secret:
    name = f"{planter.dice.choice(_NAMES)} {planter.code(7, string.ascii_lowercase).capitalize()}"
    return Secret("person", name, (name,))


def _home(planter: Planter) -> Secret:
    who = planter.code(9, string.ascii_lowercase)
    return Secret("home", planter.dice.choice((f"/home/{who}/.ssh/id_rsa", f"C:\\Users\\{who}\\Desktop\\a.txt")), (who,))


def _phone(planter: Planter) -> Secret:
    pairs = [planter.digits(2) for _ in range(6)]
    return Secret("phone", "+" + planter.dice.choice((" ", "-", ".", ") ")).join(pairs), ("".join(pairs),))


def _card(planter: Planter) -> Secret:
    digits = planter.digits(16)
    parts = [digits[at : at + 4] for at in range(0, 16, 4)]
    return Secret("card", planter.dice.choice((" ", "-", "")).join(parts), (digits,))


def _address(planter: Planter) -> Secret:
    parts = [planter.digits(2) for _ in range(4)]
    return Secret("address", ".".join(parts), (".".join(parts),))


def _hardware(planter: Planter) -> Secret:
    parts = [planter.digits(2) for _ in range(6)]
    return Secret("hardware", ":".join(parts), (":".join(parts),))


def _cookie(planter: Planter) -> Secret:
    code = planter.code(26)
    return Secret("cookie", f"Cookie: session={code}; path=/", (code,))


_KINDS: tuple[Callable[[Planter], Secret], ...] = (
    _keyed("sk-proj-", 40), _keyed("sk-ant-api03-", 40), _keyed("AIza", 35), _keyed("ghp_", 36), _keyed("glpat-", 20),
    _keyed("xoxb-", 30), _keyed("hf_", 34), _keyed("gsk_", 40), _keyed("AKIA", 16, string.ascii_uppercase), _keyed("npm_", 36),
    _keyed("SG.", 22), _keyed("sk_live_", 24), _keyed("Bearer ", 30), _basic, _jwt, _pem, _url, _mail, _kept_mail, _person,
    _home, _phone, _card, _address, _hardware, _cookie,
)  # fmt: skip
_WRITINGS: tuple[Callable[[str], str], ...] = (
    *((lambda text: text),) * 4,
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: text.encode().hex(),
    lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    lambda text: "".join(f"&#x{ord(letter):x};" for letter in text),
    lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text if ord(letter) < 0x10000),
    lambda text: json.dumps(list(text.encode())),
    lambda text: " ".join(f"{byte:o}" for byte in text.encode()),
    lambda text: json.dumps({"inner": json.dumps({"text": text})}),
)


# -- the search --------------------------------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\+u([0-9A-Fa-f]{4})")
_CODED = re.compile(r"[A-Za-z0-9+/_-]{12,}")
_NUMBERS = re.compile(r"[0-9]{2,3}(?:[^A-Za-z0-9]{1,3}[0-9]{2,3}){3,}")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])[^A-Za-z0-9]{1,2}(?=[0-9])")


def readings(text: str) -> Iterator[str]:
    """The text, and what a reader makes of it who undoes the usual writings."""
    for unescaped in (text, _ESCAPE.sub(lambda found: chr(int(found.group(1), 16)), text).replace("\\/", "/")):
        yield unescaped
        yield unescaped.replace("\\", "")
        yield urllib.parse.unquote(unescaped)
        yield html.unescape(unescaped)
        yield _BETWEEN_DIGITS.sub("", unescaped)
        yield "\n".join(_decoded(unescaped))
    yield text[::-1]


def _decoded(text: str) -> Iterator[str]:
    for found in set(_CODED.findall(text)):
        for start in range(4):
            word = found[start:].replace("-", "+").replace("_", "/")
            yield base64.b64decode(word[: len(word) // 4 * 4]).decode("utf-8", "replace")
        try:
            yield binascii.unhexlify(found[: len(found) // 2 * 2]).decode("utf-8", "replace")
        except ValueError:
            continue
    for found in set(_NUMBERS.findall(text)):
        for base in (8, 10, 16):
            try:
                numbers = [int(number, base) for number in re.findall("[0-9]+", found)]
                yield bytes(number for number in numbers if number < 256).decode("utf-8", "replace")
            except ValueError:
                continue


def surviving(text: str, secrets: list[tuple[str, Secret]]) -> list[tuple[str, str, str]]:
    """The secrets that this text still tells: their places, kinds and what is left."""
    read = list(readings(text))
    return [
        (place, secret.kind, needle)
        for place, secret in secrets
        for needle in secret.needles
        if any(needle in each for each in read)
    ]


# -- requests and answers ----------------------------------------------------------------------------------------------------


def planted_schema(plant: Planter) -> dict[str, Any]:
    """A schema with secrets in everything that a schema can say beside types and names."""
    return {
        "type": "object",
        "title": plant.at("schema title"),
        "description": plant.at("schema description"),
        "properties": {
            "city": {"type": "string", "description": plant.at("property description"), "default": plant.at("default")},
            "days": {"type": "integer", "default": plant.number("number default"), "minimum": 0},
            "unit": {"type": "string", "enum": ["celsius", plant.at("enum", written=False)]},
            "note": {"type": "string", "examples": [plant.at("example"), plant.number("number example")]},
            "fixed": {"const": plant.at("const", written=False)},
            f"account_{plant.identifier('property name')}": {"type": "string", "pattern": plant.at("pattern", written=False)},
        },
        "required": ["city"],
    }


def planted_value(plant: Planter, place: str) -> dict[str, Any]:
    """Arguments or a result with secrets as texts, numbers and keys, under names that APIs have as well."""
    return {
        "city": plant.at(f"{place} text"),
        "days": plant.number(f"{place} number"),
        "model": plant.at(f"{place} model", written=False),
        "name": plant.at(f"{place} name", written=False),
        "code": plant.at(f"{place} code"),
        "status": plant.number(f"{place} status"),
        "index": plant.number(f"{place} index"),
        plant.at(f"{place} key", written=False): [plant.number(f"{place} listed number"), {"deep": plant.at(f"{place} deep")}],
    }


def planted_request(client: str, model: str, plant: Planter, *, stream: bool) -> dict[str, Any]:
    """A second turn of an agent, with an image, a call and its result."""
    tool = {"name": f"get_{plant.identifier('tool name')}", "description": plant.at("tool description")}
    image = base64.b64encode(plant.at("image", written=False).encode()).decode()
    arguments, result = planted_value(plant, "asked arguments"), planted_value(plant, "result")
    call_id, user, asked = "call_" + plant.identifier("call id"), plant.at("user id"), plant.at("prompt")
    system, stop, schema = plant.at("system"), plant.at("stop"), planted_schema(plant)
    weather = {"name": "get_weather", "description": plant.at("tool description")}
    match client:
        case "anthropic_messages":
            return {
                "model": model, "max_tokens": 1000, "stream": stream, "system": system, "stop_sequences": [stop],
                "metadata": {"user_id": user},
                "messages": [
                    {"role": "user", "content": [
                        {"type": "text", "text": asked},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}},
                        {"type": "document", "title": plant.at("file name"),
                         "source": {"type": "text", "media_type": "text/plain", "data": plant.at("document")}}]},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": plant.at("old thought"), "signature": image},
                        {"type": "tool_use", "id": call_id, "name": "get_weather", "input": arguments}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": call_id, "content": json.dumps(result)}]},
                ],
                "tools": [{**tool, "input_schema": {"type": "object"}}, {**weather, "input_schema": schema}],
            }  # fmt: skip
        case "openai_chat":
            return {
                "model": model, "stream": stream, "stop": [stop], "user": user, "seed": 7,
                "metadata": {plant.identifier("metadata key"): plant.at("metadata value")},
                "prompt_cache_key": plant.at("cache key", written=False),
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "name": plant.identifier("speaker"), "content": [
                        {"type": "text", "text": asked},
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
                        {"type": "file", "file": {"filename": plant.at("file name", written=False),
                                                  "file_data": f"data:application/pdf;base64,{image}"}}]},
                    {"role": "assistant", "content": None, "tool_calls": [
                        {"id": call_id, "type": "function",
                         "function": {"name": "get_weather", "arguments": json.dumps(arguments, ensure_ascii=False)}}]},
                    {"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)},
                ],
                "tools": [{"type": "function", "function": {**tool, "parameters": {"type": "object"}}},
                          {"type": "function", "function": {**weather, "parameters": schema}}],
            }  # fmt: skip
        case "openai_responses":
            return {
                "model": model, "stream": stream, "instructions": system, "safety_identifier": user,
                "metadata": {plant.identifier("metadata key"): plant.at("metadata value")},
                "input": [
                    {"role": "user", "content": [
                        {"type": "input_text", "text": asked},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{image}"},
                        {"type": "input_file", "filename": plant.at("file name", written=False),
                         "file_data": f"data:application/pdf;base64,{image}"}]},
                    {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": json.dumps(arguments)},
                    {"type": "function_call_output", "call_id": call_id, "output": json.dumps(result)},
                ],
                "tools": [{"type": "function", **tool, "parameters": {"type": "object"}},
                          {"type": "function", **weather, "parameters": schema}],
            }  # fmt: skip
        case _:
            return {
                "systemInstruction": {"parts": [{"text": system}]},
                "generationConfig": {"stopSequences": [stop]},
                "labels": {"owner": plant.at("label")},
                "contents": [
                    {"role": "user", "parts": [{"text": asked}, {"inlineData": {"mimeType": "image/png", "data": image}},
                                               {"fileData": {"mimeType": "image/png", "fileUri": plant.at("file address")}}]},
                    {"role": "model", "parts": [{"functionCall": {"id": call_id, "name": "get_weather", "args": arguments}}]},
                    {"role": "user", "parts": [
                        {"functionResponse": {"id": call_id, "name": "get_weather", "response": result}}]},
                ],
                "tools": [{"functionDeclarations": [{**tool, "parametersJsonSchema": {"type": "object"}},
                                                    {**weather, "parametersJsonSchema": schema}]}],
            }  # fmt: skip


def planted_answer(plant: Planter, *, stream: bool, content: str | None = None) -> bytes:
    """An answer of Chat with text, its tokens, reasoning and a call; or with this text alone."""
    head = {"id": "chatcmpl-" + plant.identifier("response id"), "created": 1_700_000_000, "model": "m",
            "system_fingerprint": plant.identifier("fingerprint")}  # fmt: skip
    text = content if content is not None else plant.at("answer")
    arguments = json.dumps(planted_value(plant, "answer's arguments"), ensure_ascii=False)
    call = {"id": "call_" + plant.identifier("answer's call id"), "type": "function",
            "function": {"name": "get_weather", "arguments": arguments}}  # fmt: skip
    tokens = {
        "content": [{"token": letter, "logprob": -0.25, "bytes": list(letter.encode()), "top_logprobs": []} for letter in text]
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 200, "total_tokens": 300}
    extra = {"x_trace": {plant.identifier("field's name"): plant.at("field"), "number": plant.number("field's number")}}
    if not stream:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if content is None:
            message |= {"reasoning_content": plant.at("thought"), "tool_calls": [call]}
        finish = "tool_calls" if content is None else "stop"
        choice = {"index": 0, "message": message, "logprobs": tokens, "finish_reason": finish}
        return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage, **extra}).encode()
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if content is None:
        deltas += [{"reasoning_content": piece} for piece in pieces(plant.at("thought"), plant.dice)]
    deltas += [{"content": piece} for piece in pieces(text, plant.dice)]
    if content is None:
        deltas.append({"tool_calls": [{"index": 0, **call, "function": {"name": "get_weather", "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces(arguments, plant.dice)]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices[1]["logprobs"] = tokens
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls" if content is None else "stop"})
    records = [json.dumps({**head, "object": "chat.completion.chunk", "choices": [choice]}) for choice in choices]
    records.append(json.dumps({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage, **extra}))
    comment = f": {plant.identifier('comment')}\n\n"
    return (comment + "".join(f"data: {record}\n\n" for record in records) + "data: [DONE]\n\n").encode()


def pieces(text: str, dice: random.Random) -> list[str]:
    """The text as a model streams it, some letters at a time."""
    found, at = [], 0
    while at < len(text):
        size = dice.choice((1, 2, 3, 5, 8, 40))
        found.append(text[at : at + size])
        at += size
    return found

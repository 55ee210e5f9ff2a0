"""Chat stream to Anthropic stream: cost per chunk beside bare JSON decoding of the same chunks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from athena.translate import StreamTranslator
from benchmarks.timing import best_ns, table


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


_CHUNK = msgspec.json.Decoder(_Chunk)
LONG = 10
"""How many times longer an answer is whose text is looked through: what is made once for a request is not to count."""
_QUESTION = {
    "model": "moonshotai/kimi-k2-0905",
    "max_tokens": 1000,
    "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
}


def chunk(**choice: Any) -> bytes:
    """One chunk as an OpenAI-compatible server writes it."""
    value = {
        "id": "chatcmpl-123",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "moonshotai/kimi-k2-0905",
        "choices": [{"index": 0, "finish_reason": None, **choice}],
    }
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def stream(chunks: int = 200) -> list[bytes]:
    """A role chunk, text, a finish and the end."""
    body = [chunk(delta={"role": "assistant", "content": ""})]
    body += [chunk(delta={"content": f"word {number} "}) for number in range(chunks)]
    return [*body, chunk(delta={}, finish_reason="stop"), b"data: [DONE]\n\n"]


def bare_decoding(body: list[bytes]) -> Callable[[], None]:
    """The least a reader must do: decode the fields it needs of every chunk with text."""
    payloads = [part[6:] for part in body[1:-2]]

    def with_msgspec() -> None:
        for payload in payloads:
            _CHUNK.decode(payload)

    return with_msgspec


def main() -> None:
    """Print the figures."""
    body = stream()
    reasoning = chunk(delta={"reasoning_content": "The user wants words."})
    payloads = [part[6:] for part in body[1:-2]]

    def with_json() -> None:
        for payload in payloads:
            json.loads(payload)["choices"][0]["delta"].get("content")

    def translated(pairs: tuple[str, str]) -> None:
        translator = StreamTranslator(source=pairs[0], target=pairs[1])
        for part in body:
            translator.feed(part)
        translator.close()

    def looked_through(*first: bytes) -> None:
        translator = StreamTranslator(source="openai_chat", target="anthropic_messages", format="kimi_k2", request=_QUESTION)
        for part in (body[0], *first, *(body[1:-2] * LONG), *body[-2:]):
            translator.feed(part)
        translator.close()

    def coalesced() -> None:
        translator = StreamTranslator(source="openai_chat", target="anthropic_messages")
        for start in range(0, len(body), 8):
            translator.feed(b"".join(body[start : start + 8]))
        translator.close()

    rows = best_ns(
        {
            "decode with json": with_json,
            "decode with msgspec": bare_decoding(body),
            "openai_chat -> anthropic_messages, one by one": lambda: translated(("openai_chat", "anthropic_messages")),
            "openai_chat -> anthropic_messages, eight at a time": coalesced,
            "openai_chat -> openai_chat": lambda: translated(("openai_chat", "openai_chat")),
            "openai_chat -> openai_responses": lambda: translated(("openai_chat", "openai_responses")),
            "openai_chat -> gemini": lambda: translated(("openai_chat", "gemini")),
        },
        per=len(payloads),
    )
    rows |= best_ns(
        {
            "openai_chat -> anthropic_messages, looked through for calls": looked_through,
            "openai_chat -> anthropic_messages, the same behind reasoning": lambda: looked_through(reasoning),
        },
        per=len(payloads) * LONG,
    )
    table("per chunk", rows, "CPU ns", "decode with msgspec")
    added = rows["openai_chat -> anthropic_messages, one by one"] - rows["decode with msgspec"]
    print(f"  Chat to Anthropic costs {added / 1000:.2f} microseconds per chunk more than the decoding (target: at most 4)")


if __name__ == "__main__":
    main()

"""One peer's tool parsers over given texts, run by the peer's own Python: nothing of ours is imported here.

Standard input: `{"tools": [...], "texts": {parser: [chunk, ...]}}`. Standard output, one JSON object per line: `{"peer": ...,
"version": ...}`, then per parser `{"parser": ..., "seconds": CPU, "calls": [[name, arguments], ...]}` or `{"parser", "error"}`.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any

ROUNDS = 5


def vllm_reader(tools: list[dict[str, Any]], chunks: list[str]) -> Any:
    """Feeds chunks as the server does: each is one token, and every call is given all text and ids so far."""
    tokenizers, transformers = import_module("tokenizers"), import_module("transformers")
    protocol = import_module("vllm.entrypoints.openai.chat_completion.protocol")
    manager = import_module("vllm.tool_parsers").ToolParserManager
    special = sorted({*(chunk for chunk in chunks if len(chunk) > 4), "<|python_tag|>"})
    words = {word: number for number, word in enumerate(dict.fromkeys(["<unk>", *special, *chunks]))}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "<unk>")), unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    request = protocol.ChatCompletionRequest(
        model="m",
        messages=[{"role": "user", "content": "x"}],
        tools=[{"type": "function", "function": tool} for tool in tools],
    )
    ids = [words[chunk] for chunk in chunks]

    def read(name: str) -> tuple[float, list[list[str]]]:
        parser = manager.get_tool_parser(name)(tokenizer, request.tools)
        calls: list[list[str]] = []
        began = time.process_time()
        text = ""
        for number, chunk in enumerate(chunks):
            before, text = text, text + chunk
            delta = parser.extract_tool_calls_streaming(
                before, text, chunk, ids[:number], ids[: number + 1], ids[number : number + 1], request
            )
            for call in (delta.tool_calls or []) if delta is not None else []:
                if call.function is not None:
                    _collect(calls, call.index, call.function.name, call.function.arguments)
        return time.process_time() - began, calls

    return read


def sglang_reader(tools: list[dict[str, Any]], chunks: list[str]) -> Any:
    """Feeds chunks to the detector behind a parser's name."""
    protocol = import_module("sglang.srt.entrypoints.openai.protocol")
    make = import_module("sglang.srt.function_call.function_call_parser").FunctionCallParser
    declared = [protocol.Tool(type="function", function=protocol.Function(**tool)) for tool in tools]

    def read(name: str) -> tuple[float, list[list[str]]]:
        parser = make(declared, name)
        calls: list[list[str]] = []
        began = time.process_time()
        for chunk in chunks:
            _, found = parser.parse_stream_chunk(chunk)
            for call in found:
                _collect(calls, call.tool_index, call.name, call.parameters)
        return time.process_time() - began, calls

    return read


def _collect(calls: list[list[str]], index: int, name: str | None, arguments: str | None) -> None:
    while len(calls) <= index:
        calls.append(["", ""])
    calls[index][0] = calls[index][0] or name or ""
    calls[index][1] += arguments or ""


def main() -> None:
    """Read, time, print."""
    peer = sys.argv[1]
    print(json.dumps({"peer": peer, "version": version(peer)}), flush=True)
    given = json.load(sys.stdin)
    for name, chunks in given["texts"].items():
        try:
            read = (vllm_reader if peer == "vllm" else sglang_reader)(given["tools"], chunks)
            results = [read(name) for _ in range(ROUNDS)]
        except Exception as error:
            print(json.dumps({"parser": name, "error": f"{type(error).__name__}: {error}"[:200]}), flush=True)
            continue
        print(json.dumps({"parser": name, "seconds": min(one[0] for one in results), "calls": results[-1][1]}), flush=True)


if __name__ == "__main__":
    main()

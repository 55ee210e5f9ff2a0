"""Every place that walks a client's schema, as a function of one tool and one call of it; and a process that runs hostile
schemas through all of them within bounds of CPU and memory.

    python -m support.schema_places SHARD SHARDS
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable

import msgspec
from benchmarks.hostile_schemas import Hostile, hostile_schemas

from athena import schemas
from athena.dialects import dialect_names
from athena.dialects.gemini.openapi import json_schema
from athena.errors import AthenaError
from athena.exchange import Exchange, Route
from athena.formats import all_formats, get_format
from athena.formats.bodies.elements import repeated_json
from athena.formats.machine.repair import coerced, unwrapped
from athena.formats.machine.value_types import SchemaTypes, ToolBook
from athena.model.parts import Text
from athena.model.request import Output, Request, Tool, Turn
from athena.prompted.options import PromptedOptions
from athena.prompted.validation import ArgumentCheck
from athena.serving.tokens import TokenCounter
from athena.shells.demo_models import fitting
from athena.translate import translate_request

Place = Callable[[Tool, str], object]

WALKERS = ("apertus", "functiongemma", "gemma4", "gigachat3", "harmony", "kimi_k3")
"""Formats that write a schema in words of their own; the others write it as JSON."""
_CPU_PER_SCHEMA_S = 60
"""Far more than any of them takes, far less than a step that multiplies."""
_MEMORY = 3 << 30


def places() -> dict[str, Place]:
    """By name; none may raise anything but an error of Athena's own."""
    found: dict[str, Place] = {
        "check": lambda tool, call: ArgumentCheck(ToolBook([tool])).verdict(tool.name, call),
        "types": _types,
        "openai": lambda tool, call: schemas.for_openai(tool.schema, strict=False, drops=("format:uri", "$schema"), losses=[]),
        "openai strict": lambda tool, call: schemas.for_openai(tool.schema, strict=True, losses=[]),
        "anthropic": lambda tool, call: schemas.for_anthropic(tool.schema, strict=False, losses=[]),
        "anthropic strict": lambda tool, call: schemas.for_anthropic(tool.schema, strict=True, losses=[]),
        "anthropic output": lambda tool, call: schemas.for_anthropic_output(tool.schema or {}, losses=[]),
        "gemini": lambda tool, call: schemas.for_gemini(tool.schema, json_schema=True, losses=[]),
        "gemini written out": lambda tool, call: msgspec.json.encode(
            schemas.for_gemini(tool.schema, json_schema=False, losses=[])
        ),
        "demo": lambda tool, call: fitting(tool.schema),
        "gemini read": lambda tool, call: json_schema(tool.schema, "parameters"),
    }
    for name in WALKERS:
        found[f"rendered by {name}"] = _rendered(name)
    return found


def more_places() -> dict[str, Place]:
    """Those that take the same walks on a longer way."""
    found: dict[str, Place] = {f"rendered by {known.id}": _rendered(known.id) for known in all_formats()}
    for name in dialect_names():
        found[f"exchange to {name}"] = _exchange(name)
        found[f"request for {name}"] = _translated(name)
    found["prompted"] = _prompted
    found["tokens"] = lambda tool, call: TokenCounter().count(_request(tool), "m")
    return found


def _types(tool: Tool, call: str) -> None:
    book = ToolBook([tool])
    names = book.parameters(tool.name)
    for name in names[:50]:
        book.value_type(tool.name, name)
    book.infer(names[:3])
    coerced(call, book, tool.name)
    unwrapped(f'{{"arguments": {call}}}', book, tool.name)
    repeated_json(["<a><x>1</x><x>2</x></a>"] * 3, tool.schema, SchemaTypes(tool.schema), "")


def _rendered(name: str) -> Place:
    return lambda tool, call: get_format(name).render_tools([tool])


def _request(tool: Tool) -> Request:
    turn = Turn(role="user", parts=(Text(text="hello"),))
    output = Output(kind="schema", name="answer", schema=tool.schema, strict=True)
    strict = msgspec.structs.replace(tool, strict=True, name="strict_one")
    return Request(dialect="openai_chat", model="m", turns=(turn,), tools=(tool, strict), output=output)


def _exchange(name: str) -> Place:
    return lambda tool, call: Exchange(_request(tool), Route(dialect=name, model="m"))


def _translated(name: str) -> Place:
    function = {"name": "get_weather"}
    messages = [{"role": "user", "content": "hello"}]

    def translated(tool: Tool, call: str) -> object:
        tools = [{"type": "function", "function": {**function, "parameters": tool.schema}}]
        return translate_request({"model": "m", "messages": messages, "tools": tools}, source="openai_chat", target=name)

    return translated


def _prompted(tool: Tool, call: str) -> object:
    return Exchange(_request(tool), Route(dialect="openai_chat", model="m", prompted=PromptedOptions()))


def run(hostile: Hostile, found: dict[str, Place]) -> None:
    """One schema through the places."""
    tool = Tool(name="get_weather", description="The weather.", schema=hostile.schema)
    call = msgspec.json.encode(hostile.arguments).decode()
    for name, place in found.items():
        try:
            place(tool, call)
        except AthenaError:
            continue
        except Exception as error:
            error.add_note(f"{hostile.name}: {name}")
            raise


def main(shard: int, shards: int) -> None:
    """One share of all schemas; every eighth goes the longer ways too. The last name printed is the one that broke a bound."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    short, long = places(), more_places()
    count = 0
    for number, hostile in enumerate(hostile_schemas()):
        if number % shards != shard:
            continue
        print(hostile.name, flush=True)
        signal.setitimer(signal.ITIMER_PROF, _CPU_PER_SCHEMA_S)
        run(hostile, short)
        if number % 16 == shard:
            run(hostile, long)
        count += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(f"all {count}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Micro: nanoseconds and steps per chunk of every stage, of all 16 dialect pairs and of every text format.

Nanoseconds are CPU time, the best of a few rounds, beside decoding the same chunk with msgspec in the same rounds; steps are
bytecode instructions and do not vary (`steps.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import DecodeContext, EncodeContext
from athena.formats import format_names, get_format
from athena.formats.machine.stage import FormatStage
from athena.model.events import Done, Event, Finish, TextDelta, ToolCallComplete, ToolCallDelta, ToolCallStart
from athena.model.request import Request
from athena.restore import Restore
from athena.translate import StreamTranslator
from athena.wire.sse import SseDecoder
from benchmarks.formats import CALL, PROSE, TOOLS, through
from benchmarks.gateway.output import add_output_options, deliver
from benchmarks.gateway.results import Figure, new_run
from benchmarks.steps import count_steps
from benchmarks.timing import best_ns
from benchmarks.translator import bare_decoding
from benchmarks.translator import stream as chat_stream

CHUNKS = 200
BASE = "decode with msgspec"
Work = dict[str, Callable[[], object]]
Part = TypeVar("Part", bytes, list[Event])
"""What a stage is fed."""


def main(arguments: list[str]) -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="./dev bench micro", description=__doc__)
    parser.add_argument("--parts", default="stages,pairs,calls,formats", help="comma separated; all: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions, to know the noise (default: %(default)s)")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    run = new_run("micro")
    run.notes.append(f"{options.repeats} repetitions, each the best of 5 rounds")
    measured: dict[str, Callable[[], Work]] = {"stages": stages, "pairs": pairs, "calls": call_pairs}
    for part in parts:
        if part == "formats":
            run.figures += _formats(options.repeats)
        else:
            run.figures += _per_chunk(part, measured[part](), options.repeats)
    deliver(run, options)
    return 0


def text_events(count: int = CHUNKS) -> list[Event]:
    """What a model says, word by word."""
    return [TextDelta(f"word {number} ") for number in range(count)]


def stream_of(dialect: str, events: list[Event]) -> list[bytes]:
    """Those events as an upstream of this dialect sends them, one read each, and the end."""
    request = Request(dialect=dialect, model="m", stream=True, include_usage=True)
    encoder = get_dialect(dialect).encoder(EncodeContext(request=request, seed="s", created=1), stream=True)
    return [encoder.feed([event]) for event in [*events, Done(Finish())]]


def stages() -> Work:
    """Each stage of an answer's way alone, in all dialects that have their own."""
    events = [[event] for event in text_events()]
    work: Work = {BASE: bare_decoding(chat_stream(CHUNKS))}
    for dialect in dialect_names():
        body = stream_of(dialect, text_events())[:-1]
        work[f"split, {dialect}"] = partial(_each, lambda: SseDecoder().feed, body)
        work[f"split and decode, {dialect}"] = partial(_each, partial(_decoder, dialect), body)
        work[f"encode, {dialect}"] = partial(_each, partial(_encoder, dialect), events)
    work["watch for formats, auto"] = partial(_each, lambda: FormatStage("auto", tools=TOOLS).feed, events)
    work["restore"] = partial(_each, lambda: Restore(seed="s").feed, events)
    return work


def _each(make: Callable[[], Callable[[Part], object]], parts: list[Part]) -> None:
    feed = make()
    for part in parts:
        feed(part)


def _decoder(dialect: str) -> Callable[[bytes], object]:
    return get_dialect(dialect).decoder(DecodeContext(), stream=True).feed


def _encoder(dialect: str) -> Callable[[list[Event]], object]:
    request = Request(dialect=dialect, model="m", stream=True)
    return get_dialect(dialect).encoder(EncodeContext(request=request, seed="s"), stream=True).feed


def pairs() -> Work:
    """Text, from any dialect to any; and with the watch for formats, as served."""
    work: Work = {BASE: bare_decoding(chat_stream(CHUNKS))}
    for source in dialect_names():
        body = stream_of(source, text_events())
        for target in dialect_names():
            work[f"{source} -> {target}"] = partial(translate, body, source, target)
    body = stream_of("openai_chat", text_events())
    work["openai_chat -> anthropic_messages, watched"] = partial(translate, body, "openai_chat", "anthropic_messages", "auto")
    work["openai_chat -> openai_chat, watched"] = partial(translate, body, "openai_chat", "openai_chat", "auto")
    return work


def call_pairs() -> Work:
    """The arguments of a call, from any dialect to any. Gemini sends them in one piece, whatever they came in."""
    pieces = [f"word {number} " for number in range(CHUNKS)]
    events: list[Event] = [ToolCallStart(call=0, id="call_1", name="write"), ToolCallDelta(call=0, arguments='{"text":"')]
    events += [ToolCallDelta(call=0, arguments=piece) for piece in pieces]
    whole = '{"text":"' + "".join(pieces) + '"}'
    events += [ToolCallDelta(call=0, arguments='"}'), ToolCallComplete(call=0, id="call_1", name="write", arguments=whole)]
    work: Work = {BASE: bare_decoding(chat_stream(CHUNKS))}
    for source in dialect_names():
        body = stream_of(source, events)
        for target in dialect_names():
            work[f"{source} -> {target}"] = partial(translate, body, source, target)
    return work


def translate(body: list[bytes], source: str, target: str, watched: str | None = None) -> bytes:
    """A whole stream, read by read."""
    tools = [{"name": "write_file", "input_schema": {"type": "object"}}]
    chat = [{"type": "function", "function": {"name": "write_file", "parameters": {"type": "object"}}}]
    asked = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    request = {**asked, "tools": chat if target == "openai_chat" else tools} if watched else None
    translator = StreamTranslator(source=source, target=target, request=request, format=watched)
    output = b"".join([translator.feed(part) for part in body]) + translator.close()
    if translator.error is not None:
        raise RuntimeError(f"{source} -> {target}: {translator.error}")
    return output


def _per_chunk(part: str, work: Work, repeats: int) -> list[Figure]:
    rounds = [best_ns(work, per=CHUNKS, rounds=5, batch_seconds=0.01) for _ in range(repeats)]
    print(f"\n{part:<58}{'CPU ns':>10}{'by msgspec':>12}{'steps':>9}")
    found = []
    for name, function in work.items():
        nanoseconds = Figure(part, name, "cpu", "ns", [one[name] for one in rounds])
        ratio = Figure(part, name, "by msgspec decode", "x", [one[name] / one[BASE] for one in rounds], judged=name != BASE)
        steps = Figure(part, name, "steps", "", [count_steps(function) / CHUNKS], judged=True)
        print(f"  {name:<56}{nanoseconds.middle:>10.0f}{ratio.middle:>12.2f}{steps.middle:>9.0f}")
        found += [nanoseconds, ratio, steps]
    return found


def _formats(repeats: int) -> list[Figure]:
    """Prose and a call, whole and four characters at a time, in nanoseconds per kilobyte or piece."""
    print(f"\n{'formats':<22}{'prose MB/s':>12}{'call MB/s':>12}{'ns per piece of 4':>20}{'steps per piece':>18}")
    found = []
    for name in (*format_names(), "auto"):
        prose = PROSE * 100
        known = get_format("hermes" if name == "auto" else name)
        call = known.render_calls([CALL]) if known.inexpressible(CALL) is None else ""
        pieces = [call[start : start + 4] for start in range(0, len(call), 4)]
        work: Work = {"prose": partial(through, name, [prose])}
        if call:
            work |= {"call": partial(through, name, [call]), "piece": partial(through, name, pieces)}
        rounds = [best_ns(work, per=1, rounds=3, batch_seconds=0.005) for _ in range(repeats)]
        ours = [Figure("formats", name, "prose", "ns/KB", [one["prose"] / len(prose) * 1000 for one in rounds], at_most=20_000)]
        if call:
            ours.append(Figure("formats", name, "call", "ns/KB", [one["call"] / len(call) * 1000 for one in rounds]))
            ours.append(Figure("formats", name, "piece of 4", "ns", [one["piece"] / len(pieces) for one in rounds]))
            steps = count_steps(work["piece"]) / len(pieces)
            ours.append(Figure("formats", name, "steps per piece", "", [steps], judged=True))
        ours.append(Figure("formats", name, "steps of prose", "", [float(count_steps(work["prose"]))], judged=True))
        found += ours
        shown = {figure.metric: figure.middle for figure in ours}
        row = f"  {name:<20}{1e6 / shown['prose']:>12.0f}"
        row += f"{1e6 / shown['call']:>12.1f}{shown['piece of 4']:>20.0f}{shown['steps per piece']:>18.0f}" if call else ""
        print(row)
    return found

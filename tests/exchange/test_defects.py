"""Whatever a stage raises, and whatever an upstream writes where counts should stand: one head, one failure or one answer."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

from athena.answer_path import AnswerPath
from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import DecodeContext
from athena.exchange import Exchange, Options, Route, Step
from athena.model.events import Done, Error
from support.fault_judge import request_body
from support.upstream_speech import CONTROL

RAISED = (
    ValueError("x"),
    KeyError("x"),
    RecursionError("x"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
    AssertionError("x"),
)


def exchange(client: str, upstream: str, *, stream: bool) -> Exchange:
    _, body = request_body(client, "m", stream=stream)
    native = client == "gemini"
    request = get_dialect(client).decode_request(body, model="m" if native else None, stream=stream if native else None)
    made = Exchange(request, Route(dialect=upstream, model="m"), Options())
    made.upstream_head(200, {"content-type": "text/event-stream" if stream else "application/json"})
    return made


def steps(made: Exchange, reads: list[bytes]) -> list[Step]:
    return [*(made.upstream_data(data) for data in reads), made.upstream_end()]


@pytest.mark.parametrize("raised", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("client", dialect_names())
def test_an_exception_becomes_one_failure(client: str, stream: bool, raised: Exception) -> None:
    speech = CONTROL["openai_chat"]
    reads = list(speech.frames) if stream else [speech.whole]
    for broken_read in range(len(reads) + 1):
        made = exchange(client, "openai_chat", stream=stream)
        taken = [made.upstream_data(data) for data in reads[:broken_read]]
        with (
            mock.patch.object(AnswerPath, "feed", side_effect=raised),
            mock.patch.object(AnswerPath, "close", side_effect=raised),
            mock.patch("athena.exchange.plain_answer", side_effect=raised),
        ):
            taken += [made.upstream_data(data) for data in reads[broken_read:]]
            taken.append(made.upstream_end())
        heads = [step.head for step in taken if step.head is not None]
        assert len(heads) == 1
        assert made.done
        if any(step.done for step in taken[:broken_read]):
            continue  # all was said before it broke
        assert made.outcome == "error"
        assert bool(made.defect) is not isinstance(raised, RecursionError | UnicodeDecodeError)
        output = b"".join(step.output for step in taken)
        if heads[0].status == 200:
            decoder = get_dialect(client).decoder(DecodeContext(), stream=True)
            events = [*decoder.feed(output), *decoder.close()]
            assert isinstance(events[-1], Error)
            assert events[-1].fatal
        else:
            assert heads[0].status in (500, 502)
            assert "error" in json.loads(output)


ABSURD: tuple[Any, ...] = (None, True, -1, 1.5, "12", "x", [], {}, [None], 10**400, b"1e400", b"-1e999", b"1E+400")


def _with_counts(value: Any, absurd: Any) -> tuple[bytes, int]:
    """The JSON with every token count replaced, and how many were."""
    found = 0

    def walk(node: Any, inside: bool) -> Any:
        nonlocal found
        if isinstance(node, dict):
            return {key: walk(inner, inside or key in ("usage", "usageMetadata")) for key, inner in node.items()}
        if isinstance(node, list):
            return [walk(inner, inside) for inner in node]
        if inside and type(node) is int:
            found += 1
            return "@absurd@" if isinstance(absurd, bytes) else absurd
        return node

    text = json.dumps(walk(value, False)).encode()
    return text.replace(b'"@absurd@"', absurd if isinstance(absurd, bytes) else b"0"), found


def _absurd_frame(frame: bytes, absurd: Any) -> tuple[bytes, int]:
    lines = frame.split(b"\n")
    found = 0
    for number, line in enumerate(lines):
        if line.startswith(b"data: {"):
            lines[number], count = _with_counts(json.loads(line[6:]), absurd)
            lines[number] = b"data: " + lines[number]
            found += count
    return b"\n".join(lines), found


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("absurd", ABSURD, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("upstream", dialect_names())
def test_absurd_counts_cost_no_answer(upstream: str, absurd: Any, stream: bool) -> None:
    speech = CONTROL[upstream]
    replaced: list[tuple[bytes, int]] = (
        [_absurd_frame(frame, absurd) for frame in speech.frames]
        if stream
        else [_with_counts(json.loads(speech.whole), absurd)]
    )
    assert sum(found for _, found in replaced) > 0
    for client in dialect_names():
        made = exchange(client, upstream, stream=stream)
        output = b"".join(step.output for step in steps(made, [data for data, _ in replaced]))
        assert made.outcome == "ok", made.error
        assert made.usage is None or all(0 <= count < 1 << 54 for count in (made.usage.input_total, made.usage.output_total))
        decoder = get_dialect(client).decoder(DecodeContext(), stream=stream)
        assert isinstance([*decoder.feed(output), *decoder.close()][-1], Done)

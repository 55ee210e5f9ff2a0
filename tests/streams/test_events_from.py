"""Neutral events from whatever a provider's client hands out: the same from bytes, responses and the SDKs' own objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2
import msgspec
import pytest

import athena
from athena.dialects import dialect_names
from athena.errors import UpstreamClosed, UpstreamStatus, UsageError
from athena.model.profile import Profile
from support.async_sdks import AsyncClients
from support.canonical import exact_parts
from support.cases import AnswerCase, Mode, answer_modes, case_bytes
from support.fault_judge import request_body
from support.faulty_upstream import FaultyUpstream
from support.grammar import check_grammar, merged
from support.leaking_upstream import CITY, FORMS, leaked_text
from support.patience import PATIENCE
from support.sdk_streams import open_async_stream, open_stream
from support.sdks import Clients, clients_at, question
from support.upstream_speech import ARGUMENTS, CONTROL, NAME, TEXT

CASES = [
    pytest.param(dialect, case, mode, id=f"{dialect}-{case.name}-{mode}")
    for dialect in dialect_names()
    for case, mode in answer_modes(dialect)
]
HELLO, CALL = "".join(TEXT), {"city": "Paris"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as server:
        yield server


@pytest.fixture(scope="module")
def clients(upstream: FaultyUpstream) -> Clients:
    return clients_at(upstream.url)


def check_control(answer: athena.Answer) -> None:
    assert answer.error is None
    assert answer.text == HELLO
    (call,) = answer.calls
    assert (call.name, msgspec.json.decode(call.arguments)) == (NAME, CALL)
    assert answer.finish is not None
    assert answer.finish.kind == "tool"
    assert answer.usage is not None
    assert (answer.usage.input_total, answer.usage.output_total) == (10, 5)


# -- bytes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dialect", "case", "mode"), CASES)
def test_bytes_mean_what_the_case_says(dialect: str, case: AnswerCase, mode: Mode) -> None:
    data = case_bytes(case, mode)
    cuts = sorted(random.Random(case.name).sample(range(len(data) + 1), min(8, len(data))))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    profile = msgspec.convert({"dialect": dialect, **case.profile}, Profile)
    events = list(athena.events_from(pieces, dialect=dialect, profile=profile))
    check_grammar(events)
    assert merged(events) == merged(list(athena.events_from(data, dialect=dialect, profile=profile)))
    if case.error is not None:
        assert isinstance(events[-1], athena.Error)
        assert events[-1].kind == case.error.kind
    else:
        assert athena.fold(events).finish is not None
        assert isinstance(events[-1], athena.Done)


@pytest.mark.parametrize("dialect", dialect_names())
def test_bytes_all_at_once_json_and_asynchronous(dialect: str) -> None:
    frames, whole = CONTROL[dialect].frames, CONTROL[dialect].whole
    check_control(athena.events_from(b"".join(frames), dialect=dialect).read())
    check_control(athena.events_from(whole, dialect=dialect).read())
    check_control(athena.events_from(msgspec.json.decode(whole)).read())
    check_control(athena.events_from([frame.decode() for frame in frames], dialect=dialect).read())

    async def pieces() -> AsyncIterator[bytes]:
        for frame in frames:
            yield frame

    async def run() -> None:
        stream = athena.events_from(pieces(), dialect=dialect)
        with pytest.raises(UsageError, match="async for"):
            iter(stream)
        events = [event async for event in stream]
        check_control(athena.fold(events))
        check_control(stream.answer())
        check_control(await athena.events_from(whole, dialect=dialect).aread())

    asyncio.run(run())


@pytest.mark.parametrize("dialect", dialect_names())
def test_a_cut_answer_ends_in_an_error_and_holds_no_call(dialect: str) -> None:
    speech = CONTROL[dialect]
    in_call = speech.frames[: speech.in_call + (dialect != "gemini")][: len(speech.frames) - 2]
    *_, last = athena.events_from(in_call, dialect=dialect)
    assert isinstance(last, athena.Error)
    answer = athena.events_from(in_call, dialect=dialect).read()
    assert answer.error is not None
    assert dialect == "gemini" or answer.calls == ()
    with pytest.raises((UpstreamStatus, UpstreamClosed)):
        athena.encode_answer(answer, "openai_chat")


def test_leaving_and_taking_up_again() -> None:
    stream = athena.events_from(CONTROL["openai_chat"].frames, dialect="openai_chat")
    for event in stream:
        if isinstance(event, athena.TextDelta):
            break
    assert stream.answer().text == TEXT[0]
    check_control(stream.read())


# -- responses and SDKs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("dialect", dialect_names())
def test_http_responses(dialect: str, library: Any, upstream: FaultyUpstream) -> None:
    path, body = request_body(dialect, "control", stream=True)
    _, bad = request_body(dialect, "429", stream=True)
    bad_path = path.replace("/control:", "/429:")
    with library.Client(base_url=upstream.url) as client:
        with client.stream("POST", path, json=body) as response:
            check_control(athena.events_from(response, dialect=dialect).read())
        check_control(athena.events_from(client.post(path, json=body), dialect=dialect).read())
        with client.stream("POST", bad_path, json=bad) as response:
            (error,) = athena.events_from(response, dialect=dialect)
            assert isinstance(error, athena.Error)
            assert (error.kind, error.status, error.retry_after) == ("rate_limit", 429, 7.0)

    async def run() -> None:
        async with library.AsyncClient(base_url=upstream.url) as client:
            async with client.stream("POST", path, json=body) as response:
                check_control(await athena.events_from(response, dialect=dialect).aread())
            check_control(await athena.events_from(await client.post(path, json=body), dialect=dialect).aread())
            async with client.stream("POST", bad_path, json=bad) as response:
                error = (await athena.events_from(response, dialect=dialect).aread()).error
                assert error is not None
                assert error.kind == "rate_limit"

    asyncio.run(run())


@pytest.mark.parametrize("dialect", dialect_names())
def test_sdk_streams(dialect: str, clients: Clients) -> None:
    with athena.events_from(open_stream(dialect, clients, "control")) as events:
        check_control(events.read())


@pytest.mark.parametrize("dialect", dialect_names())
def test_asynchronous_sdk_streams(dialect: str, upstream: FaultyUpstream) -> None:
    import anthropic
    import openai
    from google import genai
    from google.genai import types as genai_types

    async def run() -> None:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            options = genai_types.HttpOptions(base_url=upstream.url, httpx_async_client=http)
            clients = AsyncClients(
                openai=openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="test", http_client=http),
                anthropic=anthropic.AsyncAnthropic(base_url=upstream.url, api_key="test", http_client=http),
                genai=genai.Client(api_key="test", http_options=options),
            )
            async with athena.events_from(await open_async_stream(dialect, clients, "control")) as events:
                check_control(await events.aread())

    asyncio.run(run())


def test_sdk_helper_streams_and_whole_answers(clients: Clients) -> None:
    """The helpers' streams say everything twice; the wire's records count."""
    asked = {dialect: question(dialect, "control") for dialect in dialect_names()}
    with clients.anthropic.messages.stream(**asked["anthropic_messages"]) as messages:
        check_control(athena.events_from(messages).read())
    with clients.openai.chat.completions.stream(**asked["openai_chat"], stream_options={"include_usage": True}) as completions:
        check_control(athena.events_from(completions).read())
    with clients.openai.responses.stream(**asked["openai_responses"]) as responses:
        check_control(athena.events_from(responses).read())
    check_control(athena.events_from(clients.anthropic.messages.create(**asked["anthropic_messages"])).read())
    check_control(athena.events_from(clients.openai.chat.completions.create(**asked["openai_chat"])).read())
    check_control(athena.events_from(clients.openai.responses.create(**asked["openai_responses"])).read())
    check_control(athena.events_from(clients.genai.models.generate_content(**asked["gemini"])).read())


@pytest.mark.parametrize(("dialect", "case", "mode"), CASES)
def test_sdk_objects_are_the_wire_again(
    dialect: str, case: AnswerCase, mode: Mode, clients: Clients, upstream: FaultyUpstream
) -> None:
    """Whatever the SDK reads without raising, its objects say as much as the bytes did."""
    body = case_bytes(case, mode)

    async def answer(talk: Any) -> None:
        await talk.say([body], body)

    model = f"case-{dialect}-{case.name}"
    upstream.scripts[model] = answer
    profile = msgspec.convert({"dialect": dialect, **case.profile}, Profile)
    try:
        objects = list(open_stream(dialect, clients, model)) if mode == "stream" else _whole(dialect, clients, model)
    except Exception:  # the SDK's own refusal of what is no answer
        return
    events = list(athena.events_from(objects, dialect=dialect, profile=profile))
    check_grammar(events)
    direct = list(athena.events_from(body, dialect=dialect, profile=profile))
    if case.error is None:
        assert _readable(events) == _readable(direct)
    else:
        assert isinstance(events[-1], athena.Error)


def _whole(dialect: str, clients: Clients, model: str) -> Any:
    arguments = question(dialect, model)
    match dialect:
        case "openai_chat":
            return clients.openai.chat.completions.create(**arguments)
        case "openai_responses":
            return clients.openai.responses.create(**arguments)
        case "anthropic_messages":
            return clients.anthropic.messages.create(**arguments)
        case _:
            return clients.genai.models.generate_content(**arguments)


def _readable(events: list[athena.Event]) -> list[Any]:
    """Parts that every SDK keeps: what it does not know it may have dropped."""
    parts = [part for part in exact_parts(events) if part.foreign is None]
    return [(part.text, part.thinking, part.signature, part.redacted, part.refusal, part.call, part.arguments and
             msgspec.json.decode(part.arguments), part.input, part.choice) for part in parts]  # fmt: skip


# -- text, folding and writing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", FORMS.values(), ids=FORMS.keys())
def test_calls_written_as_text(model: str) -> None:
    field = "reasoning_content" if model.endswith(":reasoning") else "content"
    text = leaked_text(model, "get_weather")
    message = {"role": "assistant", "content": None, field: text}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    assert athena.events_from(body).read().calls == ()
    ways: tuple[dict[str, Any], ...] = (
        {"format": "auto"},
        {"format": "auto", "model": model},
        {"format": "auto", "model": model, "tools": [{"name": "get_weather"}]},
    )
    for options in ways:
        if "model" not in options and model.startswith("Qwen") and field == "reasoning_content":
            # Ordinary words in reasoning are read only of models known to call there.
            continue
        answer = athena.events_from(body, **options).read()
        (call,) = answer.calls
        assert (call.name, msgspec.json.decode(call.arguments)) == ("get_weather", {"city": CITY})
        assert answer.finish is not None
        assert answer.finish.kind == "tool"


@pytest.mark.parametrize("target", dialect_names())
@pytest.mark.parametrize("source", dialect_names())
def test_events_are_written_in_any_dialect(source: str, target: str) -> None:
    events = list(athena.events_from(CONTROL[source].frames, dialect=source))
    encoder = athena.StreamEncoder(target, model="m")
    written = b"".join(encoder.feed([event]) for event in events) + encoder.close()
    check_control(athena.events_from(written, dialect=target).read())
    answer = athena.fold(events)
    for given in (answer, events):
        check_control(athena.events_from(athena.encode_answer(given, target, model="m")).read())


@pytest.mark.parametrize("target", dialect_names())
def test_an_encoder_that_is_closed_early_says_so(target: str) -> None:
    encoder = athena.StreamEncoder(target)
    written = encoder.feed([athena.TextDelta("half")]) + encoder.close()
    assert encoder.close() == b""
    assert athena.events_from(written, dialect=target).read().error is not None
    with pytest.raises(UpstreamClosed):
        athena.encode_answer([athena.TextDelta("half")], target)


def test_arguments_survive_as_the_model_wrote_them() -> None:
    (call,) = athena.events_from(CONTROL["openai_chat"].frames, dialect="openai_chat").read().calls
    assert call.arguments == "".join(ARGUMENTS)


# -- what is no source ---------------------------------------------------------------------------------------------------------


def test_what_is_no_source_is_told(clients: Clients) -> None:
    with pytest.raises(UsageError, match="say the dialect"):
        list(athena.events_from([b"data: {}\n\n"]))
    with pytest.raises(UsageError, match="no source"):
        athena.events_from(3)  # type: ignore[arg-type]  # the wrong use itself
    with pytest.raises(UsageError, match="neither bytes nor"):
        list(athena.events_from([3], dialect="gemini"))
    with pytest.raises(UsageError, match="enter"):
        athena.events_from(clients.anthropic.messages.stream(**question("anthropic_messages", "control")))  # type: ignore[arg-type]  # as above

    async def late() -> list[bytes]:
        return []

    waiting = late()
    with pytest.raises(UsageError, match="await"):
        athena.events_from(waiting)  # type: ignore[arg-type]  # as above
    waiting.close()
    with pytest.raises(UsageError, match="use `for`"):
        aiter(athena.events_from(iter([b""]), dialect="gemini"))

"""Recordings: the file, the view, replay, redaction, cases, sessions, and how bodies are told by others."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.dialects.plain_reads import SplicedRecord
from athena.errors import UpstreamClosed
from athena.model.parts import Opaque, Thinking
from athena.model.request import Kept
from athena.opaque import Memory
from athena.recording import file, lines
from athena.recording.cases import case_of, read_case, run_case
from athena.recording.compare import difference, joined
from athena.recording.deltas import delta, restored
from athena.recording.file import UnreadableRecording
from athena.recording.filters import Filter, health_of, sessions_of
from athena.recording.parted import OrderedStreams, Streams
from athena.recording.redact import redacted, shape, still_reproduces
from athena.recording.replay import Changes, replay
from athena.recording.room import Room
from athena.recording.secrets import PLACEHOLDERS, Mask, plain_headers, plain_mapping, plain_pairs, plain_query
from athena.recording.show import replayed_view, row_of, view_of
from athena.recording.tap import RecordingTap
from athena.serving.actions import Keep, Send
from athena.serving.record import RequestRecord
from athena.serving.serving import Serving
from athena.serving.sessions import belonging
from athena.serving.settings import Retries
from athena.serving.shared import AnswerSettings
from athena.serving.tap import Asked, Tap
from athena.shells.agent_run import ANY_KEY
from athena.shells.config import RecordSettings
from athena.shells.recorder.archive import _packed_streams, _unpacked_streams
from athena.shells.recorder.recorder import Recorder
from athena.state.errors import StoreDown
from support.examples import examples
from support.recorded import DIALECTS, Recorded, answers, cut
from support.serving_values import next_send

SAMPLE = Path(__file__).parents[1] / "cases" / "recordings" / "leaked_call.athena"
KEY = b"k" * 32
# -- replay ------------------------------------------------------------------------------------------------------------------


def test_every_answer_of_every_dialect_comes_out_equal() -> None:
    """All cases of all upstream dialects, for clients of all dialects in turn, streamed and whole, cut anywhere."""
    world, clients = Recorded(), itertools.cycle(DIALECTS)
    count = 0
    for upstream in DIALECTS:
        for number, (name, stream, whole) in enumerate(answers(upstream)):
            client = next(clients)
            for streamed, body in ((True, stream), (False, whole)):
                recording = world.serve(client, f"{upstream}/m", (200, cut(body, number)), stream=streamed)
                now = replay(recording)
                assert difference(recording, now).differences == [], (upstream, name, client, streamed)
                count += 1
        next(clients)
    assert count > 100


def test_attempts_failures_and_stops_come_out_equal() -> None:
    world = Recorded()
    refusal = json.dumps({"error": {"message": "busy", "type": "overloaded"}}).encode()
    (_, stream, _), *_ = answers("openai_chat")
    again = world.serve("anthropic_messages", "openai_chat/m", (503, [refusal]), (200, cut(stream, 1)))
    assert [line.status for line in again.happened if isinstance(line, lines.UpstreamHead)] == [503, 200]
    lost = world.serve("anthropic_messages", "openai_chat/m", (0, []), (503, [refusal]))
    broken = world.serve("openai_responses", "openai_chat/m", (200, cut(stream, 2)[:2]))
    for recording in (again, lost, broken):
        assert difference(recording, replay(recording)).differences == []
    serving = world.begin("anthropic_messages", "openai_chat/m")
    next_send(serving)
    serving.sending(1000.5)
    serving.head(200, {"content-type": "text/event-stream"}, 1000.75)
    serving.data(stream[: len(stream) // 2], 1001.0)
    assert serving.keep_alive(1009.0).output
    serving.stop("shutdown", 1010.0)
    serving.close(1010.5)
    stopped = world.keeper.taps[-1].made(())
    assert [type(line).__name__ for line in stopped.happened][-4:] == ["KeptAlive", "Write", "Stopped", "Write"]
    assert difference(stopped, replay(stopped)).differences == []


def test_a_different_answer_is_named_event_by_event() -> None:
    (recording,) = file.decode(SAMPLE.read_bytes())
    writes = [line for line in recording.happened if isinstance(line, lines.Write)]
    other = lines.Write(writes[0].t, lines.Payload.of(writes[0].body.data.replace(b"look first", b"look twice")))
    altered = msgspec.structs.replace(
        recording, happened=tuple(other if line is writes[0] else line for line in recording.happened)
    )
    (found,) = difference(altered, replay(altered)).differences
    assert "look twice" in found
    assert "look first" in found


def test_chunks_change_nothing_and_formats_do() -> None:
    (recording,) = file.decode(SAMPLE.read_bytes())
    plain = joined(replay(recording).events)
    for chunks in (1, 7, "random"):
        assert joined(replay(recording, Changes(chunks=chunks)).events) == plain
    result = replayed_view(recording, Changes(format="off"))
    assert not result.equal
    assert result.now.calls == []
    assert [call.name for call in result.was.calls] == ["Read"]
    for client in DIALECTS:
        assert replay(recording, Changes(client=client)).record.calls == 1


# -- the view ----------------------------------------------------------------------------------------------------------------


def test_the_view_links_lanes_and_marks_what_was_done() -> None:
    (recording,) = file.decode(SAMPLE.read_bytes())
    view = view_of(recording, ("before", recording.request.body.data[:40] + b"!"))
    steps = {item.step: item for item in view.reads}
    assert all(event.step in steps for event in view.events)
    told = [number for write in view.writes if write.first_event is not None
            for number in range(write.first_event, (write.last_event or 0) + 1)]  # fmt: skip
    assert told == [event.number for event in view.events], "every event is told once, in order"
    assert {mark.kind for mark in view.marks} >= {"hold", "text_call", "invented_id", "finish"}
    (call,) = view.calls
    assert (call.came_as, call.json, call.declared, call.schema, call.finish) == (
        "text in reasoning, kimi_k2", "yes", True, "yes", "tool, derived",
    )  # fmt: skip
    assert view.replay.equal
    assert view.prefix is not None
    assert view.prefix.common == 40
    assert msgspec.json.decode(msgspec.json.encode(view), type=type(view)) == view
    assert "".join(item.text for item in view.reads if item.kind == "read").encode() == recording.upstream_bytes


def test_rows_sessions_and_health() -> None:
    (recording,) = file.decode(SAMPLE.read_bytes())
    row = row_of(recording)
    assert (row.verdict, row.text_calls, row.program) == ("repaired", 1, "claude-cli/2.1")
    rows = [msgspec.structs.replace(row, id=f"r{number}", session="s", agent=agent, parent=parent, at=float(number))
            for number, (agent, parent) in enumerate((("", ""), ("a", "main"), ("a", "main")))]  # fmt: skip
    (session,) = sessions_of(rows)
    assert [(agent.id, agent.parent, agent.exchanges) for agent in session.agents] == [("", "", 1), ("a", "main", 2)]
    assert [each.id for each in rows if Filter(agent="a", since=2.0).holds(each)] == ["r2"]
    assert Filter(model="kimi", repaired=True, q="CLAUDE req").holds(msgspec.structs.replace(row, id="req_1"))
    (health,) = health_of(rows, {"default": False}, 3.0, 0.0)
    assert (health.requests, health.calls, health.leaks, health.up) == (3, 3, 3, False)


# -- the file ----------------------------------------------------------------------------------------------------------------


def test_files_that_are_none_say_why() -> None:
    good = SAMPLE.read_bytes()
    newer = good.replace(b'"id":"req_1"', b'"version":2,"id":"req_1"', 1)
    for bad, reason in (
        (b"hello\n", "line 1"),
        (good[: len(good) // 2].rpartition(b"\n")[0], "ends inside"),
        (newer, "version 2"),
        (good.split(b"\n", 1)[1], "no recording"),
        (good.replace(b'"line":"read"', b'"line":"sigh"', 1), "line 7"),
    ):
        with pytest.raises(UnreadableRecording, match=reason):
            file.decode(bad)
    assert len(file.decode(good + b"\n" + good)) == 2


@given(st.binary(max_size=300))
def test_any_bytes_survive_the_file(data: bytes) -> None:
    assert lines.Payload.of(data).data == data


@examples(60)
@given(st.floats(1, 1e6), st.lists(st.floats(0, 3600), max_size=5))
def test_the_drivers_times_come_back_exactly(start: float, waits: list[float]) -> None:
    from athena.recording.lines import since

    for wait in waits:
        assert start + since(start, start + wait) == start + wait


# -- what must not be in it --------------------------------------------------------------------------------------------------


def test_credentials_never_enter() -> None:
    world = Recorded()
    secrets = ("sk-client-445566", "sk-upstream-7788990011", "sk-cookie-112233")
    said = json.dumps({"error": {"message": f"bad key {secrets[0]} and {secrets[1]}", "type": "auth"}}).encode()
    pieces = [said[:30], said[30:40], said[40:]]
    recording = world.serve(
        "anthropic_messages", "openai_chat/m", (401, pieces), stream=False, cookie="a=b", text=f"my {secrets[0]}"
    )
    text = file.encode(recording).decode()
    for secret in secrets:
        assert secret not in text
    assert recording.upstream_bytes == said.replace(secrets[0].encode(), b"***").replace(secrets[1].encode(), b"***")
    assert difference(recording, replay(recording)).differences == []
    assert plain_headers([("X-Api-Key", "k"), ("Accept", "a"), ("x-auth-token", "t"), ("Cookie", "c")]) == {"accept": "a"}
    assert plain_query("alt=sse&key=secret&token=x") == "alt=sse"


@pytest.mark.parametrize("secret", ["sk-plain-1122334455", 'sk-"quoted"\\-112233', "sk-\u00fcml\u00e4ut-112233"])
@pytest.mark.parametrize("place", ["x-session-id", "x-agent-id", "user-agent", "x-other", "failure", "nowhere"])
def test_a_secret_is_masked_in_every_part(secret: str, place: str) -> None:
    world = Recorded()
    headers: dict[str, Any] = {place: f"of {secret}"} if "-" in place else {}
    serving = world.begin("openai_chat", "openai_chat/m", stream=False, **headers)
    assert isinstance(next_send(serving), Send)
    serving.sending(world.house.now)
    said = f"refused {secret}" if place == "failure" else "the connection broke"
    serving.failed(UpstreamClosed(said, code="upstream_closed"), world.house.now)
    serving.stop("client_closed", world.house.now)
    serving.close(world.house.now)
    (tap,) = world.keeper.taps
    bare, hidden = tap.made(()), tap.made((secret,))
    written = json.dumps(secret, ensure_ascii=False)[1:-1].encode()
    assert (written in file.encode(bare)) == (place != "nowhere")
    assert written not in file.encode(hidden)
    if place == "nowhere":
        assert hidden == bare


@given(st.lists(st.binary(max_size=12), max_size=12), st.sampled_from((b"secret-1", b"another-secret")))
def test_a_secret_is_masked_wherever_it_is_cut(parts: list[bytes], secret: bytes) -> None:
    whole = secret.join(parts)
    pieces = [whole[at : at + 5] for at in range(0, len(whole), 5)]
    masked = Mask(("secret-1", "another-secret")).pieces(pieces)
    assert len(masked) == len(pieces)
    assert secret not in b"".join(masked) or b"***" in secret
    assert b"".join(masked) == whole.replace(b"another-secret", b"***").replace(b"secret-1", b"***") or b"***" in whole


def plants(dice: random.Random) -> dict[str, str]:
    """Secrets of every kind, no two alike, by where they are planted."""

    def code(length: int, letters: str = "0123456789abcdef") -> str:
        return "".join(dice.choice(letters) for _ in range(length))

    def private_key(kind: str) -> str:
        return f"-----BEGIN {kind}PRIVATE KEY-----\nMIIEv{code(40)}Qz\n-----END {kind}PRIVATE KEY-----"

    return {
        "header key": f"sk-ant-{code(24)}",
        "header mail": f"otto.{code(6)}@{code(6)}.example.org",
        "header session": f"Ilse Grünwald-{code(8)}",
        "cookie": f"sid={code(32)}",
        "url query": f"AIza{code(35)}",
        "prompt key": f"sk-proj-{code(32)}",
        "prompt mail": f"kasimir.{code(6)}@{code(6)}.example.org",
        "prompt url": f"https://bob:{code(16)}@host.example/x?token={code(24)}",
        "prompt private key": private_key("RSA "),
        "prompt card": code(16, "123456789"),
        "prompt bearer": f"Bearer {code(20)}.{code(20)}.{code(20)}",
        "answer mail": f"berta+{code(6)}@{code(6)}.example.com",
        "answer key": f"ghp_{code(36)}",
        "thought private key": private_key("EC "),
        "argument url": f"postgres://amy:{code(12)}@db.example:5432/x",
        "argument key": f"AKIA{code(16, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567')}",
    }


def joined_plants(secret: dict[str, str], place: str) -> str:
    return "\n".join(value for name, value in secret.items() if name.startswith(place))


def test_500_secrets_are_gone_and_events_stay() -> None:
    """Planted in URLs, headers, cookies, prompts, systems, tools' descriptions, answers' texts, reasoning and arguments, for
    clients and upstreams of all dialects."""
    world, dice = Recorded(), random.Random(15)
    planted: set[str] = set()
    for number, (upstream, client) in enumerate(itertools.product(DIALECTS, DIALECTS)):
        for round_ in range(2):
            secret = plants(dice)
            arguments = json.dumps({"city": joined_plants(secret, "argument"), "days": 3}, ensure_ascii=False)
            body = stream_of(upstream, joined_plants(secret, "answer"), joined_plants(secret, "thought"), arguments)
            headers: dict[str, Any] = {
                "x-custom-token": secret["header key"],
                "x-note": secret["header mail"],
                "x-session-id": secret["header session"],
                "cookie": secret["cookie"],
            }
            recording = world.serve(
                client,
                f"{upstream}/m",
                (200, cut(body, number * 2 + round_)),
                text=joined_plants(secret, "prompt"),
                query=f"alt=sse&key={secret['url query']}",
                **headers,
            )
            kept = file.encode(recording).decode()
            missing = {
                name
                for name, value in secret.items()
                if not any(each in kept for each in spellings(value)) and not joined_bytes(recording, value)
            }
            assert missing == {"header key", "cookie", "url query"}, "credentials by their place, which enter no recording"
            assert difference(recording, replay(recording)).differences == []
            clean = redacted(recording, KEY)
            text = file.encode(clean).decode()
            for name, value in secret.items():
                assert not any(each in text for each in spellings(value)), (name, value)
                assert not joined_bytes(clean, value), (name, value)
                for part in value.split():
                    if len(part) >= 6 and part not in ("PRIVATE", "KEY-----", "-----BEGIN", "-----END", "Bearer"):
                        assert part not in text, (name, part)
            planted.update(secret.values())
            assert clean.header.redacted
            assert still_reproduces(clean), clean.header.notes
            assert shape(replay(clean).events, ["get_weather"]) == shape(replay(recording).events, ["get_weather"])
            assert difference(clean, replay(clean)).differences == []
            sizes = [len(line.body.data) for line in recording.happened if isinstance(line, lines.Read)]
            assert [len(line.body.data) for line in clean.happened if isinstance(line, lines.Read)] == sizes
    assert len(planted) >= 500


def spellings(value: str) -> tuple[str, ...]:
    """A secret as it may stand in a file: plain, in a JSON string, and in a JSON string inside of one."""
    once = json.dumps(value, ensure_ascii=False)[1:-1]
    return value, once, json.dumps(once, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]


def joined_bytes(recording: lines.Recording, value: str) -> bool:
    """Does it stand in what came or left, however that was cut? Arguments are strings inside of strings."""
    whole = (recording.request.body.data + recording.upstream_bytes + recording.client_bytes).decode("utf-8", "replace")
    return any(each in whole for each in spellings(value))


def stream_of(dialect: str, said: str, thought: str, arguments: str) -> bytes:
    """An answer with text, reasoning and a call, written by the dialect's own encoder from another one's stream."""
    records = [
        {"reasoning_content": thought},
        {"content": said},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
            ]
        },
    ]
    chunks = [{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
               "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in records]  # fmt: skip
    chunks.append({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                   "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})  # fmt: skip
    body = (
        b"".join(b"data: " + json.dumps(each, ensure_ascii=False).encode() + b"\n\n" for each in chunks) + b"data: [DONE]\n\n"
    )
    if dialect == "openai_chat":
        return body
    return Recorded().serve(dialect, "openai_chat/m", (200, [body])).client_bytes


def test_every_answer_of_every_dialect_stays_itself_when_redacted() -> None:
    world, clients = Recorded(), itertools.cycle(DIALECTS)
    unlike = []
    total = 0
    for upstream in DIALECTS:
        for number, (name, stream, whole) in enumerate(answers(upstream)):
            client = next(clients)
            streamed = number % 2 == 0
            recording = world.serve(client, f"{upstream}/m", (200, cut(stream if streamed else whole, number)), stream=streamed)
            clean = redacted(recording, KEY)
            total += 1
            if not still_reproduces(clean):
                unlike.append((upstream, name, client, clean.header.notes))
    assert not unlike, f"{len(unlike)} of {total}: {unlike[:3]}"


@pytest.mark.parametrize("odd", [b"\\ud83d", b"\xff\xfe"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_with_half_a_character_stays_itself_when_redacted(dialect: str, odd: bytes) -> None:
    """At home, where the answer's own fields reach the client."""
    world, tried = Recorded(), 0
    for name, stream, whole in answers(dialect):
        for streamed, data in ((True, stream), (False, whole)):
            broken = data.replace(b"Paris", b"Pa" + odd + b"ris").replace(b"Hello", b"Hel" + odd + b"lo")
            if broken == data:
                continue
            tried += 1
            recording = world.serve(dialect, f"{dialect}/m", (200, cut(broken, tried)), stream=streamed)
            clean = redacted(recording, KEY)
            assert still_reproduces(clean), (name, clean.header.notes)
    assert tried


def test_a_key_that_is_none_is_not_masked() -> None:
    """An agent without a key sends `athena`, a word that errors of Gemini's style hold."""
    assert ANY_KEY in PLACEHOLDERS
    world = Recorded()
    begun = world.begin("gemini", "openai_chat/m")
    next_send(begun)
    begun.sending(1000.5)
    begun.head(200, {"content-type": "text/event-stream"}, 1000.75)
    begun.data(PLAIN, 1001.0)
    begun.end(None, 1002.0)
    begun.close(1002.5)
    tap = world.keeper.taps[-1]
    tap._key = ANY_KEY
    recording = tap.made(())
    assert b'"domain":"athena"' in recording.client_bytes
    assert difference(recording, replay(recording)).equal
    tap._key = "a-true-key-of-somebody"
    assert tap.asked_as is not None
    body = tap.body.replace(b"}", b',"x":"a-true-key-of-somebody"}', 1)
    tap.asked_as = msgspec.structs.replace(tap.asked_as, body=body)
    assert b"a-true-key-of-somebody" not in file.encode(tap.made(()))


# -- cases -------------------------------------------------------------------------------------------------------------------


def test_what_is_remembered_of_earlier_turns_can_be_read_when_it_is_redacted() -> None:
    world = Recorded()
    recording = world.serve("openai_chat", "openai_chat/m", (200, [next(answers("openai_chat"))[1]]))
    state = Opaque(family="anthropic", kind="signature", payload="c2VjcmV0IHdvcmRz", format="anthropic-claude-v1")
    memory = Memory(thinking=(Thinking(text="secret words", signature=state),), signature=state)
    remembered = {"call_1": msgspec.to_builtins(memory)}
    clean = redacted(
        msgspec.structs.replace(recording, seals=msgspec.structs.replace(recording.seals, remembered=remembered)), b"k" * 32
    )
    (kept,) = clean.seals.remembered.values()
    read = msgspec.convert(kept, Memory)
    assert read.signature is not None
    assert (read.signature.family, read.signature.kind, read.signature.format) == (state.family, state.kind, state.format)
    assert b"secret" not in file.encode(clean)
    assert difference(clean, replay(clean)).equal


@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from((0, 1, 2, 7)), st.sampled_from((0.0, 0.25, 1 / 3)), st.binary(min_size=1, max_size=5)),
        max_size=20,
    ),
    st.floats(1, 1e6),
    st.booleans(),
)
def test_what_is_parted_is_whole_again(happened: list[tuple[int, float, bytes]], clock: float, is_old: bool) -> None:
    """Reads, writes and other lines in any order, some at one moment, some in the middle of a letter; also as older archives
    have them."""
    now, times = clock, []
    for _, wait, _ in happened:
        now += wait
        times.append(now)
    steps = [(time, kind, data) for time, (kind, _, data) in zip(times, happened, strict=True) if kind < 2]
    reads, writes = ([data if kind == wanted else b"" for _, kind, data in steps] for wanted in (0, 1))
    places, passed = [], 0
    for kind, _, _ in happened:
        if kind > 1:
            places.append(passed)
        else:
            passed += 1
    streams = Streams.of(clock, places, [time for time, _, _ in steps], reads, writes)
    if is_old:
        moments = [time for time, _, _ in steps]
        same = bytes(number > 0 and time == moments[number - 1] for number, time in enumerate(moments))
        old = OrderedStreams(
            clock,
            bytes(kind for kind, _, _ in happened),
            same,
            [len(data) for _, _, data in steps],
            streams.data,
            [time for time, is_same in zip(moments, same, strict=True) if not is_same],
        )
        assert old.steps() == streams
    others = [lines.Tick(number) for number, (kind, _, _) in enumerate(happened) if kind > 1]
    found = streams.lines(others)
    assert [type(line).__name__ for line in found] == [
        "Read" if kind == 0 else "Write" if kind == 1 else "Tick" for kind, _, _ in happened
    ]
    for line, (_, _, data), moment in zip(found, happened, times, strict=True):
        if isinstance(line, lines.Read | lines.Write):
            assert line.body.data == data
            assert clock + line.t == moment


RECORDS = (
    SplicedRecord(b'data: {"t":"', b'"}\n\n', b'event: d\ndata: {"text":', b"}\n\n", False),
    SplicedRecord(b'data: {"sk-in-the-frame":1,"t":"', b'","f":null}\n\n', b"", b"", True),
)
HIDDEN = ("sk-in-the-frame", "sk-plain-1234", 'a "quoted" secret', "schl\u00fcssel", 't":"sk-over', "back\\slash-1")
TEXTS = [
    "word ", "\n", "sk-plain-", "1234", "sk-over the border", "", "schl\u00fcssel", *HIDDEN,
]  # fmt: skip


@examples(150)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.lists(st.lists(st.sampled_from(TEXTS), max_size=3).map("".join), max_size=3), st.booleans()
        ),
        max_size=150,
    ),
    st.sets(st.sampled_from(HIDDEN)),
)
@example([(0, ["sk-plain-1234"], True)], {"sk-plain-1234"})
@example([(0, ["a", "b"], False), (1, ["b"], False)], {"sk-in-the-frame"})
@example([(0, ['a "quoted" secret'], True), (0, ["schl\u00fcssel", "b"], True)], {'a "quoted" secret', "schl\u00fcssel"})
@example([(1, ['a "quote",', ",", ',\n"'], True), (0, ['a "quote",', ",", "\\"], True)], set())
def test_texts_alone_are_recorded_as_the_records_they_stand_for(
    steps: list[tuple[int, list[str], bool]], secrets: set[str]
) -> None:
    """Where reads are noted by their texts, the recording is the one of whole reads and writes, secrets masked in it or not."""
    taps = [next(taps_of_nothing()) for _ in range(2)]
    for number, (kind, texts, is_ascii) in enumerate(steps):
        now = 1000.0 + number
        strings = [json.dumps(text, ensure_ascii=is_ascii).encode() for text in texts]
        came = b",\n".join(strings)
        record = RECORDS[kind] if kind < len(RECORDS) else None
        if record is not None and texts and all(texts):
            read, written = (b"".join(map(made, strings)) for made in (record.came, record.left))
            assert (record.came(came), record.left(came)) == (read, written)
            taps[0].notes.extend((now, came, record))
            taps[1].passed(read, written, now, (came, record) if number % 2 else None)
        elif kind == 3 and texts and all(texts):
            read_in_parts(taps, came, strings, now, is_same=is_ascii)
        else:
            for tap in taps:
                tap.passed(b"read " + came, b"" if kind == 2 else b"written " + came, now)
        for tap in taps:
            if number % 60 == 7:
                tap.moment("keep_alive", now)
            if number % (5 + 64 * taps.index(tap)) == 4:
                tap.gather()
    one, other = (tap.made(sorted(secrets)) for tap in taps)
    assert one == other
    for secret in secrets:
        assert secret.encode() not in one.upstream_bytes + one.client_bytes
        assert msgspec.json.encode(secret)[1:-1] not in one.upstream_bytes + one.client_bytes
    kept = [taps[0].parted(sorted(secrets)).streams, None, taps[1].parted(()).streams]
    assert _unpacked_streams(_packed_streams(kept)) == kept, "as an archive keeps it"


def test_half_a_character_in_a_failure_is_recorded() -> None:
    """An upstream may write one into its error as an escape; a head is then kept as JSON."""
    tap = next(taps_of_nothing())
    tap.record.error_message = "half \ud83d of it"
    tap.record.details.bad_calls["x"] = 1
    recording = tap.made(())
    assert recording.outcome.record["error_message"] == "half \ud83d of it"
    assert recording.outcome.details["bad_calls"] == {"x": 1}
    assert tap.packed().head.startswith(b"[")


HEADER_NAMES = st.sampled_from(["accept", "Accept", "x-api-key", "authorization", "user-agent", "X-Token", "cookie", "date"])


@examples(60)
@given(st.lists(st.tuples(HEADER_NAMES, st.text(st.characters(max_codepoint=255), max_size=4)), max_size=6))
def test_headers_lose_the_same_credentials_however_they_are_given(pairs: list[tuple[str, str]]) -> None:
    sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    assert plain_pairs(sent) == plain_headers(pairs)
    assert plain_mapping(dict(pairs)) == plain_headers(dict(pairs).items())


def read_in_parts(taps: list[RecordingTap], came: bytes, strings: list[bytes], now: float, *, is_same: bool) -> None:
    """A read of which the first tap is told in parts, and the other one whole. `is_same`: what left is told by the parts."""
    record = RECORDS[len(strings) % 2]
    read = b"".join((b"before", *map(record.came, strings), b"after"))
    written = b"".join((*map(record.left, strings), b"left"))
    parts: list[tuple[bytes, bytes | SplicedRecord]] = [(b"before", b""), (came, record), (b"after", b"left")]
    one, other = taps
    one.notes.extend((now, parts, b""))
    other.upstream_bytes(read, now)
    if len(strings) > 1:
        for tap in taps:
            tap.moment("tick", now)
    if is_same:
        one.notes.extend((now + 0.5, b"", parts))
    else:
        one.client_bytes(written, now + 0.5)
    other.client_bytes(written, now + 0.5)


def taps_of_nothing() -> Iterator[RecordingTap]:
    """Taps of a request to which nothing has happened yet."""
    asked = Asked(
        now=1000.0, wall=5.0, method="POST", path="/v1/messages", query="", headers={}, body=b"{}", targets=(),
        answers=AnswerSettings(), retries=Retries(), correct=True,
    )  # fmt: skip
    while True:
        tap = RecordingTap(RequestRecord(request_id="req_1"), None, Room(1 << 30), lambda tap: None, version="test")
        tap.asked(asked)
        yield tap


def test_a_case_is_red_until_the_configuration_fits() -> None:
    (recording,) = file.decode(SAMPLE.read_bytes())
    wrong = msgspec.json.decode(msgspec.json.encode(recording.settings), type=lines.Settings)
    for target in wrong.targets:
        target.route.pop("format", None)
    recording = msgspec.structs.replace(recording, settings=wrong)
    assert replay(recording).record.calls == 0, "the call leaks"
    text = case_of(recording, Changes(format="kimi_k2"), redact_with=KEY)
    case = read_case(text)
    assert run_case(case), "red: the recorded settings read no text"
    assert run_case(case, Changes(format="kimi_k2")) == []
    assert run_case(case, Changes(format="kimi_k2", chunks=1)) == []
    assert "src/main" not in text


CASES = sorted((Path(__file__).parents[1] / "cases" / "exchanges").glob("*.toml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases(path: Path) -> None:
    assert run_case(read_case(path.read_text(encoding="utf-8"))) == []


# -- sessions and bodies -----------------------------------------------------------------------------------------------------


def test_sessions_as_clients_name_them() -> None:
    claude = belonging({"user-agent": "claude-cli/2.1.0 (external, cli)", "x-claude-code-session-id": "s1",
                        "x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}, b"{}")  # fmt: skip
    assert (claude.program, claude.session, claude.agent, claude.parent) == ("claude-cli/2.1.0", "s1", "a2", "a1")
    old = {"metadata": {"user_id": "user_abc_account__session_0192aaaa-bbbb-cccc-dddd-eeeeffff0000"}}
    assert belonging({}, json.dumps(old).encode()).session == "0192aaaa-bbbb-cccc-dddd-eeeeffff0000"
    new = {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "0192aaaa-bbbb-cccc-dddd-eeeeffff0001"})}}
    assert belonging({}, json.dumps(new).encode()).session == "0192aaaa-bbbb-cccc-dddd-eeeeffff0001"
    codex = belonging({"session-id": "s", "thread-id": "t"}, b"{}")
    assert (codex.session, codex.agent) == ("s", "t")
    assert belonging({}, b'{"prompt_cache_key": "p"}').session == "p"
    assert belonging({}, b"no json").session == ""


@examples(100)
@given(
    st.lists(st.sampled_from(['{"role":"user","content":"', "x" * 60, '"}', ",", "tail", "y" * 200]), max_size=14), st.randoms()
)
def test_a_body_comes_back_from_its_delta(parts: list[str], dice: random.Random) -> None:
    base = "".join(parts).encode()
    other = list(parts)
    if other:
        other[dice.randrange(len(other))] = "changed"
        if dice.random() < 0.5:
            other.insert(dice.randrange(len(other)), "new " * 30)
    body = "".join(other).encode()
    told = delta(base, body)
    if told is not None:
        assert restored(base, told) == body


# -- taps that fail ----------------------------------------------------------------------------------------------------------


PLAIN = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"content":"words "},"finish_reason":null}]}\n\n'
)
TAP_METHODS = [name for name, value in vars(Tap).items() if callable(value) and not name.startswith("_")]


class Failing:
    """A watcher whose taps raise in these methods."""

    def __init__(self, *methods: str) -> None:
        self.called: list[str] = []

        def method(name: str) -> Callable[..., Any]:
            def called(tap: Tap, *arguments: Any) -> Any:
                self.called.append(name)
                if name in methods:
                    raise RuntimeError(f"a fault in {name}")
                return arguments[0] if name == "options" else None

            return called

        # Plain reads take the short way only where nobody wants to see events.
        sees = {"sees_bytes": True, "sees_events": "passed" not in methods}
        self._tap = type("Raising", (Tap,), {**sees, **{name: method(name) for name in TAP_METHODS}})

    def wants_bodies(self) -> bool:
        return True

    def watch(self, record: RequestRecord, request: Any, key: str | None) -> Tap:
        tap: Tap = self._tap()
        return tap


def failing_world(*watchers: Any) -> tuple[Recorded, list[str]]:
    """A house that is watched by these first, and by the recorder after them; and what it says of their faults."""
    world, faults = Recorded(), list[str]()
    world.house.shared.watchers = (*watchers, world.keeper)
    world.house.shared.tap_failed = lambda request_id, error: faults.append(f"{request_id}: {error}")
    return world, faults


def pass_by(serving: Serving, output: bytes | None, now: float) -> None:
    """One more plain read, as a relay passes it on where it may: this left for the last one."""
    if serving.splice is None or output is None:
        serving.data(PLAIN, now)
        return
    noted = serving.reads_noted
    if isinstance(noted, list):
        noted += (now, PLAIN, output)
    elif noted is not None:
        noted(PLAIN, output, now)
    serving.relayed(["words "], PLAIN, now)


def one_is_down_and_one_refuses_images(world: Recorded) -> str:
    """A model of two targets: the first is known to be down, the second not to take images."""
    down, other = world.house.targets.of("either")
    for _ in range(50):
        world.house.shared.health.visit(down.upstream).ended(ok=False)
    assert not world.house.shared.health.is_up(down.upstream)
    for number in range(5):
        world.house.shared.learnt.confirm(other, ("images",), f"client {number}")
    return "either"


def served_to_the_end(world: Recorded) -> list[lines.Recording]:
    """Requests that see every method of a tap called."""
    (_, stream, whole), *_ = answers("openai_chat")
    recordings = [
        world.serve("anthropic_messages", "openai_chat/m", (503, [b"{}"]), (200, cut(stream, 1))),
        world.serve("gemini", "openai_chat/m", (200, [whole]), stream=False),
        world.serve("anthropic_messages", one_is_down_and_one_refuses_images(world), (200, [whole]), stream=False),
    ]
    serving = world.begin("anthropic_messages", "openai_chat/m")
    next_send(serving)
    serving.sending(1000.5)
    serving.head(200, {"content-type": "text/event-stream"}, 1000.75)
    serving.data(stream[: len(stream) // 2], 1001.0)
    serving.keep_alive(1009.0)
    serving.stop("shutdown", 1010.0)
    serving.close(1010.5)
    recordings.append(world.keeper.taps[-1].made(()))
    serving = world.begin("anthropic_messages", "openai_chat/m")
    next_send(serving)
    serving.sending(1000.5)
    serving.head(200, {"content-type": "text/event-stream"}, 1000.75)
    serving.data(PLAIN, 1001.0)
    for moment in (1001.5, 1002.0, 1002.5):
        output = serving.plain(PLAIN, moment)
        if output is None:
            serving.data(PLAIN, moment)
    pass_by(serving, output, 1003.0)
    serving.data(PLAIN * 20, 1003.5)
    serving.stop("shutdown", 1010.0)
    serving.close(1010.5)
    recordings.append(world.keeper.taps[-1].made(()))
    kept = Kept(id="resp_" + "0" * 40, waits=True)
    serving = world.begin("openai_responses", "openai_chat/m", stream=False, kept=kept)
    next_send(serving)
    serving.sending(1000.5)
    serving.head(200, {"content-type": "application/json"}, 1000.75)
    serving.data(whole, 1001.0)
    serving.end(None, 1001.0)
    assert isinstance(serving.next(1001.0), Keep)
    serving.kept(1002.0, failure=StoreDown("it is away"))
    serving.close(1002.5)
    return [*recordings, world.keeper.taps[-1].made(())]


def test_a_tap_that_raises_touches_no_answer_and_no_other_tap() -> None:
    usual = served_to_the_end(Recorded())
    seen = Failing()
    world, faults = failing_world(seen)
    assert served_to_the_end(world) == usual
    assert set(seen.called) == {*TAP_METHODS} - {"dropped", "passed", "gather"}, "every method was called"
    assert not faults
    for name in set(TAP_METHODS) - {"dropped", "gather"}:
        failing = Failing(name, "dropped")
        world, faults = failing_world(failing)
        assert served_to_the_end(world) == usual, name
        hit = [fault.partition(":")[0] for fault in faults if fault.endswith(f"a fault in {name}")]
        assert hit, name
        assert len(hit) == len(set(hit)), "once for each request"
        assert failing.called.count("dropped") == len(hit), name
        assert len(faults) == 2 * len(hit), "what is raised while it is dropped is told, too"


def test_notes_that_cannot_be_put_together_touch_no_answer() -> None:
    """A tap that watches alone is told of little; what it makes of its notes may still fail."""
    usual, world, faults = Recorded(), Recorded(), list[str]()
    world.house.shared.tap_failed = lambda request_id, error: faults.append(str(error))
    written: list[bytes] = []

    def gather(tap: RecordingTap) -> None:
        raise MemoryError("a fault in gather")

    for each in (world, usual):
        serving = each.begin("anthropic_messages", "openai_chat/m")
        next_send(serving)
        serving.sending(1000.5)
        serving.head(200, {"content-type": "text/event-stream"}, 1000.75)
        with pytest.MonkeyPatch.context() as broken:
            if each is world:
                broken.setattr(RecordingTap, "gather", gather)
            outputs = [serving.plain(PLAIN, 1001.0 + n) or serving.data(PLAIN, 1001.0 + n).output for n in range(300)]
        written.append(b"".join(outputs))
        serving.stop("shutdown", 2000.0)
        serving.close(2000.0)
    assert written[0] == written[1]
    assert faults == ["a fault in gather"]
    assert not world.keeper.taps[0].is_whole
    assert usual.keeper.taps[0].made(()).client_bytes.startswith(written[1])


def test_a_watcher_that_raises_touches_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = served_to_the_end(Recorded())
    failing = Failing()
    monkeypatch.setattr(failing, "watch", lambda record, request, key: {}[record.request_id])
    world, faults = failing_world(failing)
    assert served_to_the_end(world) == usual
    assert len(faults) == len(usual), "once for each request"


@pytest.mark.parametrize("name", ["asked", "upstream_bytes", "client_head", "over"])
def test_a_recording_that_fails_gives_its_room_back(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fault(tap: RecordingTap, *arguments: Any) -> None:
        raise MemoryError(name)

    ends: list[str] = []
    recorder = Recorder(
        RecordSettings(), "memory", Path("unused"), tuple, lambda: ends.append("kept"), lambda: ends.append("dropped")
    )
    faults: list[Exception] = []
    usual = [recording.client_bytes for recording in served_to_the_end(Recorded())]

    async def serve() -> list[bytes]:
        world = Recorded()
        world.house.shared.watchers = (recorder, world.keeper)
        world.house.shared.tap_failed = lambda request_id, error: faults.append(error)
        with monkeypatch.context() as broken:
            # The keeper's taps are whole: only those of the recorder fail.
            broken.setattr("athena.shells.recorder.recorder.RecordingTap", type("Faulty", (RecordingTap,), {name: fault}))
            return [recording.client_bytes for recording in served_to_the_end(world)]

    assert asyncio.run(serve()) == usual
    assert [type(error) for error in faults] == [MemoryError] * len(usual)
    assert ends == ["dropped"] * len(usual)
    assert not recorder._live
    assert recorder._room.taken == 0
    recorder.close()

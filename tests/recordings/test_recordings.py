"""Recordings: replay, the view, the file, cases, sessions, and how bodies are told by others."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.recording import file, lines
from athena.recording.cases import case_of, read_case, run_case
from athena.recording.compare import difference, joined
from athena.recording.deltas import delta, restored
from athena.recording.file import UnreadableRecording
from athena.recording.filters import Filter, health_of, sessions_of
from athena.recording.replay import Changes, replay
from athena.recording.show import replayed_view, row_of, view_of
from athena.serving import sessions
from athena.serving.actions import Build, Send
from athena.serving.sessions import Belonging, belonging, session_in
from support.examples import examples
from support.recorded import DIALECTS, KEY, PLAIN, Recorded, answers, cut
from support.serving_values import next_send

SAMPLE = Path(__file__).parents[1] / "cases" / "recordings" / "leaked_call.athena"


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


@pytest.mark.parametrize("client", DIALECTS)
def test_a_client_that_waits_before_anything_is_sent_is_kept_alive_again(client: str) -> None:
    """A large request is made in a thread, and the client's time may be over before it is sent."""
    recorded = Recorded()
    serving = recorded.begin(client, "openai_chat/m")
    assert isinstance(serving.next(1000.0), Build)
    serving.build()
    assert serving.keep_alive(1009.0).output
    serving.keep_alive(1012.0)
    assert isinstance(serving.next(1013.0), Send)
    serving.sending(1013.0)
    serving.head(200, {"content-type": "text/event-stream"}, 1014.0)
    serving.data(PLAIN + b"data: [DONE]\n\n", 1015.0)
    serving.close(1016.0)
    recording = recorded.keeper.taps[-1].made(())
    assert difference(recording, replay(recording)).differences == []
    told = [line for line in recording.happened if isinstance(line, lines.ClientHead)]
    assert [step.client_headers for step in replay(recording).steps if step.client_status] == [told[0].headers]


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


def test_what_only_the_client_is_told_is_nothing_that_an_upstream_sent() -> None:
    refusal = json.dumps({"error": {"message": "no such key", "type": "authentication_error"}}).encode()
    recording = Recorded().serve("anthropic_messages", "openai_chat/m", (401, [refusal]))
    view = view_of(recording)
    assert [item.kind for item in view.reads] == ["attempt", "head", "read", "end", "told"]
    assert [(write.step, write.status) for write in view.writes] == [(4, 401)]


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


def test_an_answer_with_odd_figures_is_recorded() -> None:
    """What an upstream counts besides may be a number that no other program can write down."""
    usage = f'"usage":{{"prompt_tokens":3,"completion_tokens":4,"odd":{10**30}}}'.encode()
    end = b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}],%b}\n\n' % usage
    recording = Recorded().serve("openai_chat", "openai_chat/m", (200, [end, b"data: [DONE]\n\n"]))
    assert b"%d" % 10**30 in recording.upstream_bytes
    assert recording.outcome.details["usage"] == {"input_total": 3, "output_total": 4}


def test_times_are_those_of_the_attempt_that_the_client_got() -> None:
    """Else a retry after a refusal would look like text that was held."""
    answers = [chat_chunk(content="words"), chat_chunk("stop"), b"data: [DONE]\n\n"]
    recording = Recorded().serve("openai_chat", "either", (503, [b"{}"]), (200, answers))
    second = [at for at, line in enumerate(recording.happened) if isinstance(line, lines.Attempt)][1]
    later = [msgspec.structs.replace(line, t=line.t + 5.0) for line in recording.happened[second:]]
    view = view_of(msgspec.structs.replace(recording, happened=[*recording.happened[:second], *later]))
    assert view.row.attempts == 2
    assert (view.timing.attempt, view.timing.upstream_head, view.timing.first_read) == (5250.0, 5350.0, 5350.0)
    assert view.timing.longest_gap < 100
    assert [mark.text for mark in view.marks if mark.kind == "retry"] == ["attempt 2: openai_chat/learnt, after status 503"]


def test_a_repair_names_its_level() -> None:
    function = {"name": "weather", "arguments": "{'city': 'Paris'}"}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    answer = [chat_chunk(tool_calls=[call]), chat_chunk("tool_calls"), b"data: [DONE]\n\n"]
    view = view_of(Recorded().serve("openai_chat", "openai_chat/m", (200, answer)))
    assert [(mark.rule, mark.call) for mark in view.marks if mark.kind == "repair"] == [("syntax", 0)]
    (verdict,) = view.calls
    assert (verdict.repaired, verdict.json, verdict.arguments) == (True, "yes", '{"city": "Paris"}')


def chat_chunk(finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"id": "c", "created": 1, "model": "m", "choices": [choice]}).encode()


def test_health_tells_also_of_the_times_in_which_nothing_was_asked() -> None:
    """Points stand on an axis of time: left out, the quiet hours between two requests would not be seen."""
    (recording,) = file.decode(SAMPLE.read_bytes())
    row = row_of(recording)
    refused = {"verdict": "error", "first_byte_ms": 0.0}
    rows = [msgspec.structs.replace(row, id="a", at=1000.0, first_byte_ms=40.0),
            msgspec.structs.replace(row, id="b", at=1001.0, **refused),
            msgspec.structs.replace(row, id="c", at=4599.0, **refused)]  # fmt: skip
    (health,) = health_of(rows, {}, 4600.0, 1000.0)
    assert [point.at for point in health.points] == [1000.0 + 120 * number for number in range(30)]
    assert [point.requests for point in health.points] == [2, *(0,) * 28, 1]
    assert (health.points[0].first_byte_ms, health.points[29].first_byte_ms) == (40.0, 0.0), "who got no byte waited for none"


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


# -- cases -------------------------------------------------------------------------------------------------------------------


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
    own = {"x-session-affinity": "ses_b", "x-session-id": "ses_b", "user-agent": "opencode/1.2.3"}
    assert belonging(own, b"{}") == Belonging("opencode/1.2.3", "ses_b")
    assert belonging({**own, "x-parent-session-id": "ses_a"}, b"{}") == Belonging("opencode/1.2.3", "ses_a", "ses_b")
    assert belonging({}, b'{"prompt_cache_key": "p"}').session == "p"
    assert belonging({}, b"no json").session == ""


NAMING = {"user_id": "user_1__session_0192aaaa-bbbb"}
FIELDS_OF_BODIES = st.sampled_from(
    (
        ("metadata", NAMING),
        ("metadata", {"user_id": "somebody"}),
        ("metadata", {"session_id": "of metadata"}),
        ("metadata", None),
        ("messages", [{"x": 1, "metadata": NAMING}]),
        ("messages", [{"content": 'as JSON: ,"metadata":{"user_id":"session_01234567"}}'}]),
        ("messages", {"a": [1], "metadata": NAMING, "prompt_cache_key": "inner"}),
        ("prompt_cache_key", "p"),
        ("session_id", "s"),
        ("max_tokens", 3),
    )
)


@examples(200)
@given(st.lists(FIELDS_OF_BODIES, max_size=5), st.booleans())
def test_metadata_at_the_end_of_a_body_is_what_the_whole_body_says(fields: list[tuple[str, Any]], is_spaced: bool) -> None:
    """Names may stand twice in an object, in objects inside of it, and in texts."""
    comma, colon = (", ", ": ") if is_spaced else (",", ":")
    told = [f'"{name}"{colon}' + json.dumps(value, separators=(comma, colon)) for name, value in fields]
    body = f"{{{comma.join(told)}}}".encode()
    said = sessions._decode(body)
    assert session_in(body) == (sessions._named(said.metadata) or sessions._chosen(said))


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

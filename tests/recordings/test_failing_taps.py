"""Taps, watchers and recordings that fail: no answer shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from athena.model.request import Kept
from athena.recording import lines
from athena.recording.tap import RecordingTap
from athena.serving.actions import Keep
from athena.serving.record import RequestRecord
from athena.serving.serving import Serving
from athena.serving.tap import Tap
from athena.shells.config import RecordSettings
from athena.shells.recorder.recorder import Recorder
from athena.state.errors import StoreDown
from support.recorded import PLAIN, Recorded, answers, cut
from support.serving_values import next_send

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
    if noted is not None:
        noted(PLAIN, output, now)
    serving.relayed([b'"words "'], [now], PLAIN)


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

"""The bench's parts that need no load: its requests, its table of systems, its step counter, its command line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmarks.__main__ import SMALL, SUITES, main
from benchmarks.gateway import tools
from benchmarks.gateway.bodies import Dialect, request
from benchmarks.gateway.cases import CASES
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.peers import PEERS
from benchmarks.gateway.scale.large import SIZES, TURNS, large_body
from benchmarks.gateway.suite import chosen_cases, target
from benchmarks.gateway.systems import SYSTEMS, Place, system_named
from benchmarks.steps import count_steps

from athena.translate import translate_request

ROOT = Path(__file__).parents[2]
NAMES: dict[Dialect, str] = {"chat": "openai_chat", "messages": "anthropic_messages"}


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("streamed", [True, False])
def test_the_requests_are_ones_athena_takes_without_loss(dialect: Dialect, streamed: bool) -> None:
    body = request(dialect, "fake-p0", streamed=streamed, image="aGVsbG8=")
    for other in NAMES.values():
        translated = translate_request(body, source=NAMES[dialect], target=other)
        assert translated.warnings == ()
        assert b"aGVsbG8=" in msgspec.json.encode(translated.body)


@pytest.mark.parametrize("case", ["100 KB image", "1 MB image", TURNS])
def test_large_bodies_have_the_size_they_say(case: str) -> None:
    size = SIZES.get(case, (1_000_000, 0))[0]
    assert len(msgspec.json.encode(large_body("messages", case)[0])) == pytest.approx(size, rel=0.1)


def test_a_slow_system_gets_fewer_requests_and_never_fewer_than_run_at_once() -> None:
    case = CASES["s128"]
    assert case.count(slow=True, share=1) < case.count(slow=False, share=1)
    assert case.count(slow=True, share=0.01) == case.concurrent
    with pytest.raises(CannotMeasure, match="no case 'n17'"):
        chosen_cases("n16,n17")


def test_every_row_of_the_table_can_be_launched(tmp_path: Path) -> None:
    for name, system in SYSTEMS.items():
        if system.launch is None or name.startswith("nginx"):
            continue
        launch = system.launch(Place(1234, "http://127.0.0.1:99", tmp_path))
        assert "1234" in launch.command, name
        assert system.reference in SYSTEMS, name


def test_another_checkout_runs_its_own_source(tmp_path: Path) -> None:
    system = system_named(f"athena-msg@{ROOT}")
    assert system.launch is not None
    assert system.launch(Place(1, "http://127.0.0.1:2", tmp_path)).environment["PYTHONPATH"] == str(ROOT / "src")
    for name, said in ((f"athena-msg@{tmp_path}", "no checkout"), (f"nginx@{ROOT}", "does not come"), ("apache", "no system")):
        with pytest.raises(CannotMeasure, match=said):
            system_named(name)


def test_targets_are_those_of_the_design() -> None:
    def of(system: str, case: str) -> float | None:
        return target(SYSTEMS[system], CASES[case])

    assert (of("athena-msg", "n16"), of("athena-chat", "s16"), of("athena-msg", "p128")) == (4.0, 3.0, 1.5)
    assert (of("athena-pass", "s128"), of("relay", "s16")) == (2.0, None)


def test_a_missing_compiler_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "BUILD", tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CannotMeasure, match=r"no C compiler 'no-such-compiler'.*apt-get install gcc"):
        tools.tool("load")


def test_steps_are_the_same_every_time_and_grow_with_the_work() -> None:
    def work(rounds: int) -> int:
        return sum(number * number for number in range(rounds))

    assert count_steps(lambda: work(10)) == count_steps(lambda: work(10)) < count_steps(lambda: work(20))


def test_an_unknown_name_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in (*SUITES, *SMALL))


def test_no_peer_hides_a_system() -> None:
    assert not set(PEERS) & set(SYSTEMS)

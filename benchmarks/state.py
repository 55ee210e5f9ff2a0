"""What state costs: requests that are kept beside the same ones that are not, and continuations beside the whole history.

CPU time of the gateway's process, over all its threads, in alternating rounds of one run: ratios, not speeds. The upstream and
the clients are another process, and so is PostgreSQL, whose own work is not counted. Clients ask one after the other, which is
the dearest way; and 16 at once. What SQLite gets later is waited for in either way, and counted for the requests before it.

Requests that are kept and those that are not come in groups of eight, by turns: the machine's own speed, which changes from one
second to the next, meets both. The event loop's thread is counted for each group; what is not kept gives nothing to any other
thread, so all that those run is counted for what is kept.

As in a real conversation, no request is sent twice: each ends with a message of its own. What is sent whole holds the answer as
the model gave it, so that the model is asked the same by a continuation; that is checked.

vLLM's agentic-api does the same work beside it where it is installed, in an environment of its own:
`python3 -m venv .peers/agentic-api && .peers/agentic-api/bin/pip install agentic-api==0.9.0`. It needs an upstream that speaks
Responses, so that is what both have in that comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import httpx2 as httpx  # noqa: E402  # the path comes first

from athena.shells.store import Store  # noqa: E402
from athena.shells.store.sqlite import SqliteDatabase  # noqa: E402
from athena.shells.store.store import StoreLimits  # noqa: E402
from athena.state.resolve import joined_chain  # noqa: E402
from athena.state.values import StoredResponse  # noqa: E402
from benchmarks.gateway import processes  # noqa: E402
from benchmarks.gateway.output import add_output_options, deliver  # noqa: E402
from benchmarks.gateway.results import Figure, Run, new_run  # noqa: E402
from benchmarks.pairs import show  # noqa: E402
from support.gateway_process import GatewayProcess, free_port  # noqa: E402
from support.patience import PATIENCE  # noqa: E402
from support.postgres import PostgresServer, binaries  # noqa: E402
from support.remembering_upstream import RememberingUpstream, config  # noqa: E402

AGENTIC = ROOT / ".peers" / "agentic-api" / "bin" / "agentic-server"
ROUNDS = 8
KEPT_ROUNDS = 16
"""Of requests that are kept and those that are not: the limit is near what it costs."""
REQUESTS = 32
"""Requests of one kind before those of the other: few, so that whatever else the machine does meets both."""
ALONE = 96
"""The same where a client asks one after the other: of so few as above, a round says little."""
GROUP = 8
"""Requests of one kind before some of the other, where those that are kept and those that are not come by turns."""
SETTLED_S = 1.1
"""After so long everything that was kept is in the database: its journal gathers for a second. What is written later would be
counted for whatever is measured next."""
AT_ONCE = 16
TURNS = 100
AGENT_TURNS = 16
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
WORDS = "some words of a turn " * 20


Body = Callable[[str], dict[str, Any]]
"""Makes a request of a word that no other request has."""


def ending(before: list[dict[str, Any]], text: str, **settings: Any) -> Body:
    """Requests with this input and one more message, of the text and the word."""
    return lambda word: {"input": [*before, {"role": "user", "content": f"{text} {word}"}], **settings}


def loop_seconds(pid: int) -> float:
    """What the event loop's thread has run; it is waited for until it rests."""
    before = -1.0
    while (now := processes.loop_seconds(pid)) != before:
        before = now
        time.sleep(0.002)
    return now


def history(turns: int) -> list[dict[str, Any]]:
    """As in a real conversation, no two turns are the same."""
    said: list[dict[str, Any]] = []
    for turn in range(turns):
        said += [{"role": "user", "content": f"{turn} {WORDS}"}, {"role": "assistant", "content": f"{WORDS} {turn}"}]
    return said


def rehydrated(run: Run, directory: Path) -> None:
    """200 items of a chain of 100 responses, read from SQLite and decoded."""

    async def work() -> list[float]:
        store = Store(SqliteDatabase(directory / "bench" / "store.sqlite3"), StoreLimits(max_age_s=1e9, max_bytes=1 << 40))
        item = b'[{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"%b"}]}]' % WORDS.encode()
        for number in range(TURNS):
            parent = f"r{number - 1}" if number else None
            await store.put_response(
                StoredResponse(id=f"r{number}", owner="", created=float(number), parent=parent, input=item, output=item)
            )
        times = []
        for _ in range(50):
            begun = time.perf_counter()
            parts = await store.chain("", f"r{TURNS - 1}")
            assert parts is not None
            assert len(joined_chain(parts)) == 2 * TURNS
            times.append((time.perf_counter() - begun) * 1000)
        await store.close()
        return times

    times = asyncio.run(work())
    title = "200 items of 100 responses from SQLite"
    print(f"{title}: median {statistics.median(times):.2f} ms, best {min(times):.2f} ms")
    run.figures.append(Figure(title, "athena", "time", "ms", times, at_most=5.0))


class Bench:
    """One gateway process and its clients."""

    def __init__(self, run: Run, pid: int, url: str, model: str = "chat/m", settled_s: float = SETTLED_S) -> None:
        """`settled_s`: how long to wait until everything that was kept is in the database."""
        self.run = run
        self._settled_s = settled_s
        self._pid = pid
        self._model = model
        self._client = httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False)
        self._threads = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self._numbers = itertools.count(1)

    def ask(self, body: dict[str, Any]) -> Any:
        answer = self._client.post("/v1/responses", json={"model": self._model, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cost(self, body: Body, at_once: int = 1) -> float:
        """Microseconds of CPU for one request."""
        bodies = self._made(body, REQUESTS * at_once)
        begun = processes.cpu_seconds([self._pid])
        self._ask_all(bodies, at_once)
        time.sleep(self._settled_s)
        return (processes.cpu_seconds([self._pid]) - begun) / len(bodies) * 1e6

    def costs_by_turns(self, unkept: Body, kept: Body, at_once: int, turn: int) -> tuple[float, float]:
        """Microseconds of CPU for one request of each kind, in groups by turns; every second time the other one is first."""
        loop = {unkept: 0.0, kept: 0.0}
        requests = REQUESTS if at_once > 1 else ALONE
        begun, rested = processes.cpu_seconds([self._pid]), loop_seconds(self._pid)
        for group in range(requests // GROUP):
            for body in (unkept, kept) if (group + turn) % 2 else (kept, unkept):
                bodies = self._made(body, GROUP * at_once)
                before = loop_seconds(self._pid)
                self._ask_all(bodies, at_once)
                loop[body] += loop_seconds(self._pid) - before
        time.sleep(self._settled_s)
        others = processes.cpu_seconds([self._pid]) - begun - (loop_seconds(self._pid) - rested)
        count = requests * at_once
        return loop[unkept] / count * 1e6, (loop[kept] + others) / count * 1e6

    def _made(self, body: Body, count: int) -> list[dict[str, Any]]:
        return [body(f"w{next(self._numbers)}") for _ in range(count)]

    def _ask_all(self, bodies: list[dict[str, Any]], at_once: int) -> None:
        if at_once == 1:
            for each in bodies:
                self.ask(each)
        else:
            list(self._threads.map(self.ask, bodies))

    def turn_cost(self, *, kept: bool, continued: bool) -> float:
        """Microseconds of CPU for each turn of an agent, in a new conversation: a call of a tool, then its result, and so on.
        Each turn continues the response before it, or sends everything that was said."""
        said = [{"role": "user", "content": f"conversation {next(self._numbers)}"}, *history(TURNS)]
        settings = {"store": kept, "tools": [TOOL]}
        answer = self.ask({"input": [*said, {"role": "user", "content": "use the tool first"}], **settings})
        said += [{"role": "user", "content": "use the tool first"}, *answer["output"]]
        time.sleep(self._settled_s)
        begun = processes.cpu_seconds([self._pid])
        for _ in range(AGENT_TURNS):
            (call,) = (item["call_id"] for item in answer["output"] if item["type"] == "function_call")
            new = [
                {"type": "function_call_output", "call_id": call, "output": WORDS},
                {"role": "user", "content": f"use the tool w{next(self._numbers)}"},
            ]
            body = {"input": new, "previous_response_id": answer["id"]} if continued else {"input": [*said, *new]}
            answer = self.ask({**body, **settings})
            said += [*new, *answer["output"]]
        time.sleep(self._settled_s)
        return (processes.cpu_seconds([self._pid]) - begun) / AGENT_TURNS * 1e6

    def compare(self, title: str, base: Body, other: Body, at_most: float | None = None) -> None:
        for body in (base, other):
            self.cost(body)
        show(self.run, title, [in_turn(self, base, self, other, turn) for turn in range(ROUNDS)], at_most)

    def close(self) -> None:
        self._threads.shutdown()
        self._client.close()


def in_turn(one: Bench, base: Body, two: Bench, other: Body, turn: int) -> tuple[float, float]:
    """What each of two ways costs; every second time the other one is first."""
    if turn % 2:
        second = two.cost(other)
        return one.cost(base), second
    return one.cost(base), two.cost(other)


@contextlib.contextmanager
def agentic(run: Run, upstream: RememberingUpstream, directory: Path) -> Iterator[Bench]:
    """agentic-api in front of the same upstream, on an SQLite file of its own."""
    port = free_port()
    command = [
        str(AGENTIC), "--llm-api-base", upstream.url, "--gateway-host", "127.0.0.1", "--gateway-port", str(port),
        "--skip-llm-ready-check", "--db-url", f"sqlite://{directory}/agentic.db?mode=rwc",
    ]  # fmt: skip
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "OPENAI_API_KEY": "sk-upstream-0123456789"}
    with open(directory / "agentic.log", "wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    bench = Bench(run, process.pid, f"http://127.0.0.1:{port}", "m")
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                bench.ask({"input": "ready?"})
                break
            except httpx.TransportError:
                assert time.monotonic() < until, (directory / "agentic.log").read_text()
                time.sleep(0.1)
        yield bench
    finally:
        bench.close()
        process.terminate()
        process.wait()


def beside_agentic(run: Run, upstream: RememberingUpstream, own: Bench, directory: Path) -> None:
    """The same requests to both, over an upstream of Responses: ours first, then theirs."""
    if not AGENTIC.exists():
        print("agentic-api is not installed in .peers/agentic-api: not compared")
        return
    with agentic(run, upstream, directory) as other:

        def compare(title: str, first: Body, second: Body) -> None:
            own.cost(first), other.cost(second)
            pairs = [in_turn(own, first, other, second, turn) for turn in range(ROUNDS)]
            show(run, f"{title}, Athena and agentic-api", pairs)

        for title, body in (
            ("a short question, not kept", ending([], WORDS, store=False)),
            ("a short question, kept", ending([], WORDS, store=True)),
            ("200 items sent whole, kept", ending(history(TURNS), "on", store=True)),
        ):
            compare(title, body, body)
        before = [bench.ask({"input": history(TURNS), "store": True})["id"] for bench in (own, other)]
        first, second = (ending([], "on", previous_response_id=name, store=True) for name in before)
        compare("200 items continued", first, second)


def kept_and_not(bench: Bench, place: str, at_most: float | None = None) -> None:
    """What it costs that a request is kept, in one place."""
    for title, turns in (("a short question", 0), ("20 turns", 10)):
        before = history(turns)
        for at_once in (1, AT_ONCE):
            together = f", {at_once} at once" if at_once > 1 else ""
            unkept, kept = (ending(before, WORDS, store=store) for store in (False, True))
            for body in (unkept, kept):
                bench.cost(body, at_once)
            rounds = KEPT_ROUNDS if at_once == 1 else KEPT_ROUNDS // 2
            pairs = [bench.costs_by_turns(unkept, kept, at_once, turn) for turn in range(rounds)]
            show(bench.run, f"{place}, {title}{together}, not kept and kept", pairs, at_most)


def continued(bench: Bench, upstream: RememberingUpstream) -> None:
    """What a continuation costs beside sending the whole conversation again."""
    said = history(TURNS)
    first = bench.ask({"input": said, "store": True})
    before = [*said, *first["output"]]

    def compare(title: str, text: str, keeps: tuple[bool, bool], at_most: float | None = None, **settings: Any) -> None:
        whole = ending(before, text, store=keeps[0], **settings)
        continuation = ending([], text, previous_response_id=first["id"], store=keeps[1], **settings)
        for body in (whole, continuation):
            bench.ask(body("same"))
        assert upstream.answered[-1] == upstream.answered[-2], "the model is asked the same"
        bench.compare(f"200 items{title}", whole, continuation, at_most=at_most)

    compare(", sent whole and continued, neither kept", "on", (False, False), at_most=1.0)
    compare(", sent whole and continued, both kept", "on", (True, True), at_most=1.0)
    compare(", sent whole and not kept, and continued", "on", (False, True))
    # An agent's turn: what the model says is short beside what was said before.
    call = "use the tool"
    compare(" and a call for an answer, sent whole and not kept, and continued", call, (False, True), tools=[TOOL])
    for title, kept, at_most in ((", both kept", True, 1.0), (", only the continuations kept", False, None)):
        pairs = [
            (bench.turn_cost(kept=kept, continued=False), bench.turn_cost(kept=True, continued=True)) for _ in range(ROUNDS)
        ]
        show(bench.run, f"an agent's turns after 200 items, sent whole and continued{title}", pairs, at_most)


def on_postgres(run: Run, upstream: RememberingUpstream, directory: Path) -> None:
    """The same on PostgreSQL, where it is installed."""
    if binaries() is None:
        print("PostgreSQL is not installed: not measured")
        return
    server = PostgresServer()
    try:
        gateway = GatewayProcess(config(upstream, store={"url": server.url}, record=False), directory, "error")
        try:
            bench = Bench(run, gateway.process.pid, gateway.url, settled_s=0.0)  # what is answered there is in the database
            kept_and_not(bench, "PostgreSQL", 1.15)
            bench.close()
        finally:
            gateway.stop()
    finally:
        server.close()


def main(arguments: list[str]) -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="./dev bench state", description=__doc__)
    add_output_options(parser)
    options = parser.parse_args(arguments)
    run = new_run("state")
    _measure(run)
    deliver(run, options)
    return 0


def _measure(run: Run) -> None:
    with tempfile.TemporaryDirectory() as name, RememberingUpstream() as upstream:
        directory = Path(name)
        rehydrated(run, directory)
        on_postgres(run, upstream, directory)
        gateway = GatewayProcess(config(upstream, state_dir=str(directory / "state"), record=False), directory, "error")
        try:
            bench = Bench(run, gateway.process.pid, gateway.url)
            kept_and_not(bench, "SQLite", 1.15)
            continued(bench, upstream)
            bench.close()
            responses = Bench(run, gateway.process.pid, gateway.url, "responses/m")
            beside_agentic(run, upstream, responses, directory)
            responses.close()
        finally:
            gateway.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

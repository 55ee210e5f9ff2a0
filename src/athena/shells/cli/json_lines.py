"""Blocks of JSON lines through one process or several: the working end of `athena parse --jsonl`.

Worker processes hold one block each and read from a pipe of their own. When this process dies, however it dies, the pipes close
and they end: `concurrent.futures` leaves its workers behind on SIGTERM. They are started by a fork server, because a fork of a
process with threads (the progress bar has one) may lock up.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator
from io import BufferedReader
from multiprocessing.connection import Connection, Pipe, wait
from typing import TypedDict

from athena.batch.lines import BlockCutter, LineBlock, LineParser, ParsedBlock
from athena.errors import AthenaError
from athena.formats.machine.policies import EchoRule, RepairLevel

_READ_BYTES = 256 * 1024
_BLOCKS_AHEAD = 4
"""Blocks per worker that may be parsed before an older one is."""

ParsedBlocks = Generator[tuple[ParsedBlock, int], None, None]
"""Blocks in the order of the input, parsed, and how many bytes of input each was."""


class LineParserSettings(TypedDict):
    format: str
    repair: RepairLevel
    echo: EchoRule
    writes_events: bool


def parsed_here(source: BufferedReader, settings: LineParserSettings) -> ParsedBlocks:
    """The blocks of the input, parsed by this process. What is there is parsed at once, be it a single line."""
    parser = LineParser(**settings)
    cutter = BlockCutter()
    ended = False
    while not ended:
        data = source.read1(_READ_BYTES)
        ended = not data
        block = cutter.feed(data) if data else cutter.close()
        if block is not None:
            yield parser.parse(block), len(block.lines)


def parsed_by_processes(source: BufferedReader, settings: LineParserSettings, count: int) -> ParsedBlocks:
    """The same by `count` processes. No more than a few blocks for each are in memory."""
    workers = [_Worker(settings) for _ in range(count)]
    try:
        yield from _spread(source, workers)
        for worker in workers:
            worker.finish()
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()


def _spread(source: BufferedReader, workers: list[_Worker]) -> ParsedBlocks:
    cutter = BlockCutter()
    idle = list(workers)
    busy: dict[Connection, _Worker] = {}
    done: dict[int, tuple[ParsedBlock, int]] = {}
    given = written = 0
    ended = False
    while not ended or busy:
        may_read = not ended and bool(idle) and given - written < _BLOCKS_AHEAD * len(workers)
        for ready in wait([*busy, source.fileno()] if may_read else list(busy)):
            if isinstance(ready, Connection):
                worker = busy.pop(ready)
                done[worker.place] = worker.take()
                idle.append(worker)
                continue
            data = source.read1(_READ_BYTES)
            ended = not data
            block = cutter.feed(data) if data else cutter.close()
            if block is not None:
                worker = idle.pop()
                worker.give(block, given)
                busy[worker.connection] = worker
                given += 1
        while written in done:
            yield done.pop(written)
            written += 1


class _Worker:
    """A process, the pipe to it, and the block it has."""

    def __init__(self, settings: LineParserSettings) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["athena.shells.cli.json_lines"])
        self.connection, theirs = Pipe()
        self.process = context.Process(target=_work, args=(theirs, settings), daemon=True)
        self.process.start()
        theirs.close()
        self.place = -1
        self._bytes = 0

    def give(self, block: LineBlock, place: int) -> None:
        self.place, self._bytes = place, len(block.lines)
        try:
            self.connection.send(block)
        except OSError:
            raise self._gone() from None

    def take(self) -> tuple[ParsedBlock, int]:
        try:
            return self.connection.recv(), self._bytes
        except (EOFError, OSError):
            raise self._gone() from None

    def finish(self) -> None:
        self.connection.close()
        self.process.join()

    def _gone(self) -> AthenaError:
        self.process.join(1)
        return AthenaError(f"a worker process ended with code {self.process.exitcode}; if memory ran out, try fewer --workers")


def _work(connection: Connection, settings: LineParserSettings) -> None:
    """Parse blocks until the pipe closes. A Ctrl-C goes to all processes of the terminal; the first one sees to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = LineParser(**settings)
    while True:
        try:
            block = connection.recv()
        except EOFError:
            return
        connection.send(parser.parse(block))

"""`map_batches` in Dask's worker processes: what comes out is what `athena parse --jsonl` writes, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from importlib import import_module
from typing import Any

import pandas  # type: ignore[import-untyped]  # pandas has no types of its own
import pyarrow
import pytest

import athena
from support.batch_records import as_lines, as_table, outcome_lines, records
from support.patience import PATIENCE

# Dask is typed by halves: its calls are untyped and its names are not exported.
dask: Any = import_module("dask")
dask_dataframe: Any = import_module("dask.dataframe")

COUNT = 2_000
PARTS = 5


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the command line makes of the same records."""
    folder = tmp_path_factory.mktemp("lines")
    source, sink = folder / "in.jsonl", folder / "out.jsonl"
    source.write_bytes(as_lines(records(COUNT)))
    command = [sys.executable, "-m", "athena", "parse", "--jsonl", "--workers", "2", str(source), "-o", str(sink)]
    subprocess.run(command, check=True, timeout=5 * PATIENCE)
    return sink.read_bytes()


def test_arrow_batches_in_processes_give_what_the_command_line_writes(written: bytes) -> None:
    batches = as_table(records(COUNT)).to_batches(max_chunksize=COUNT // PARTS)
    assert len(batches) == PARTS
    tasks = [dask.delayed(athena.map_batches)(batch) for batch in batches]
    mapped = dask.compute(*tasks, scheduler="processes", num_workers=2)
    assert all(isinstance(batch, pyarrow.RecordBatch) for batch in mapped)
    assert outcome_lines(row for batch in mapped for row in batch.to_pylist()) == written


def test_arrow_backed_frames_in_processes_give_what_the_command_line_writes(written: bytes) -> None:
    frame = as_table(records(COUNT)).to_pandas(types_mapper=pandas.ArrowDtype)
    frames = dask_dataframe.from_pandas(frame, npartitions=PARTS)
    mapped = frames.map_partitions(athena.map_batches)
    assert mapped.npartitions == PARTS
    # The meta that Dask infers by a trial run is the truth.
    assert str(mapped.dtypes["tool_calls"]) == str(athena.map_batches(frame[:1]).dtypes["tool_calls"])
    found = mapped.compute(scheduler="processes", num_workers=2)
    assert outcome_lines(pyarrow.Table.from_pandas(found, preserve_index=False).to_pylist()) == written


def test_settings_travel_and_the_work_is_done_elsewhere() -> None:
    table = pyarrow.table({"answer": ['<tool_call>{"name": "f", "arguments": {}}</tool_call>'] * 4})
    function = partial(athena.map_batches, columns={"text": "answer"}, tools=[{"name": "f"}])

    def told(batch: pyarrow.RecordBatch) -> tuple[int, list[Any]]:
        return os.getpid(), function(batch).column("tool_calls").to_pylist()

    done = dask.compute(*[dask.delayed(told)(batch) for batch in table.to_batches(max_chunksize=2)], scheduler="processes")
    assert os.getpid() not in {pid for pid, _ in done}
    assert [call[0]["name"] for _, calls in done for call in calls] == ["f"] * 4

"""Arrow batches of every kind that Ray, Spark and Dask hand over: the same outcomes, the same kind back, the schema kept."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it has no types
import numpy
import pandas  # type: ignore[import-untyped]  # pandas has no types of its own
import pyarrow
import pytest

import athena
from athena.batch import outcome_schema, spark_schema
from athena.errors import InvalidRequest, UsageError
from support.batch_records import as_table, outcome_lines, records

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def names(batch: Any) -> list[list[str]]:
    return [[call["name"] for call in row["tool_calls"]] for row in batch.to_pylist()]


def test_every_kind_of_batch_gives_what_parse_batch_gives() -> None:
    given = list(records(36, unreadable_every=11))
    table = as_table(given)
    wanted = outcome_lines(
        {
            **outcome,
            "errors": [{**each, "message": each["message"].removeprefix(f"record {number}: ")} for each in outcome["errors"]],
        }
        for number, outcome in enumerate(athena.parse_batch(given), start=1)
    )
    mapped = athena.map_batches(table)
    assert mapped.schema == outcome_schema(pyarrow.int64())
    assert outcome_lines(mapped.to_pylist()) == wanted

    [batch] = table.to_batches()
    assert isinstance(athena.map_batches(batch), pyarrow.RecordBatch)
    assert outcome_lines(athena.map_batches(batch).to_pylist()) == wanted

    parts = athena.map_batches(iter(table.to_batches(max_chunksize=5)))
    assert outcome_lines(row for part in parts for row in part.to_pylist()) == wanted

    for frame in (table.to_pandas(types_mapper=pandas.ArrowDtype), table.to_pandas()):
        mapped_frame = athena.map_batches(frame)
        assert outcome_lines(pyarrow.Table.from_pandas(mapped_frame, preserve_index=False).to_pylist()) == wanted
        [from_iterator] = athena.map_batches(iter([frame]))
        assert from_iterator.equals(mapped_frame)


def test_a_frame_keeps_its_index_and_has_arrow_types() -> None:
    frame = pandas.DataFrame({"id": ["x", 2], "text": [CALL, 5]}, index=[7, 3])
    mapped = athena.map_batches(frame)
    assert list(mapped.index) == [7, 3]
    assert list(mapped["id"]) == ["x", 2]
    assert [str(kind) for kind in mapped.dtypes[["text", "incomplete"]]] == ["string[pyarrow]", "bool[pyarrow]"]
    assert mapped["tool_calls"][7][0]["name"] == "f"
    assert mapped["errors"][3][0]["code"] == "bad_record"


def test_columns_may_have_other_names_and_others_are_ignored() -> None:
    table = pyarrow.table({"text": ["not this"], "answer": [CALL], "request": [{"host": "a", "n": 1}], "format": ["hermes"]})
    mapped = athena.map_batches(table, columns={"text": "answer", "id": "request"})
    assert names(mapped) == [["f"]]
    assert mapped.column("id").to_pylist() == [{"host": "a", "n": 1}]
    assert mapped.schema.field("id").type == table.schema.field("request").type


def test_without_an_id_the_column_is_empty() -> None:
    mapped = athena.map_batches(pyarrow.table({"text": ["a", "b"]}))
    assert mapped.schema == outcome_schema()
    assert mapped.column("id").to_pylist() == [None, None]


def test_an_empty_batch_has_the_schema() -> None:
    empty = as_table([])
    assert athena.map_batches(empty).schema == outcome_schema(pyarrow.int64())
    assert athena.map_batches(empty.to_pandas()).columns.tolist() == outcome_schema().names
    assert list(athena.map_batches(iter([]))) == []


@pytest.mark.parametrize(
    "kind", [pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), pyarrow.string_view()]
)
def test_text_may_be_stored_in_any_way(kind: pyarrow.DataType) -> None:
    column: Any = pyarrow.array([CALL, None, CALL]).cast(kind)
    assert names(athena.map_batches(pyarrow.table({"text": column}))) == [["f"], [], ["f"]]


def test_nested_tools_lose_the_fields_that_arrow_made_up() -> None:
    tools = [
        [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}],
        [{"name": "g", "parameters": {"type": "object", "properties": {"b": {"type": "string"}}}}],
    ]
    table = pyarrow.Table.from_pylist([{"text": CALL.replace("1", '"1"'), "tools": each} for each in tools])
    assert table.to_pylist()[1]["tools"][0]["parameters"]["properties"]["a"] is None
    first, second = athena.map_batches(table, repair="schema").to_pylist()
    assert [json.loads(call["arguments"]) for call in first["tool_calls"]] == [{"a": 1}]
    assert second["tool_calls"] == []


def test_settings_hold_for_rows_that_do_not_say() -> None:
    table = pyarrow.table({"text": [CALL, CALL], "tools": [None, '[{"name": "f"}]']})
    assert names(athena.map_batches(table, tools=[{"name": "other"}])) == [[], ["f"]]
    assert athena.map_batches(table, format="kimi").column("format").to_pylist()[0] == "kimi_k2"


def test_text_that_is_no_utf8_costs_its_bytes_and_not_the_batch() -> None:
    broken: Any = pyarrow.array([b"a\xffb", CALL.encode()]).view(pyarrow.string())
    first, second = athena.map_batches(pyarrow.table({"text": broken})).to_pylist()
    assert first["text"] == "a\ufffdb"
    assert second["tool_calls"][0]["name"] == "f"
    chunks: Any = pyarrow.ListArray.from_arrays([0, 2], broken)
    [outcome] = athena.map_batches(pyarrow.table({"chunks": chunks})).to_pylist()
    assert (outcome["text"], len(outcome["tool_calls"])) == ("a\ufffdb", 1)


def test_mixed_columns_cost_the_cells_that_are_wrong() -> None:
    cells = [numpy.array(["a", CALL]), None, float("nan"), pandas.NA, 5, ["b", 7]]
    mapped = athena.map_batches(pandas.DataFrame({"chunks": pandas.Series(cells, dtype=object), "text": ["t"] * 6}))
    assert mapped["text"].tolist() == ["a", "t", "t", "t", "", ""]
    assert ["$.chunks" in str(errors) for errors in mapped["errors"]] == [False, False, False, False, True, True]


def test_half_characters_out_of_a_frame_become_the_replacement_character() -> None:
    frame = pandas.DataFrame({"text": pandas.Series(["a\ud83d", CALL], dtype=object)})
    assert athena.map_batches(frame)["text"].tolist() == ["a\ufffd", ""]


@pytest.mark.parametrize(
    ("batch", "settings", "message"),
    [
        ({"text": ["a"]}, {}, 'batch_format="pyarrow"'),
        ([pyarrow.table({"text": ["a"]})], {}, "an iterator of them"),
        (pyarrow.table({"answer": ["a"]}), {}, "no column 'text' or 'chunks'; there are: answer"),
        (pyarrow.table({"text": ["a"]}), {"columns": {"id": "key"}}, "no column 'key'"),
        (pyarrow.table({"text": ["a"]}), {"columns": {"txet": "text"}}, "'txet' is no field of a record"),
        (pyarrow.table({"text": ["a"]}), {"format": "hermies"}, "unknown format"),
    ],
)
def test_wrong_use_says_what_to_do(batch: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        athena.map_batches(batch, **settings)


def test_unusable_tools_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"tools\[0\]"):
        athena.map_batches(pyarrow.table({"text": ["a"]}), tools=[1])  # type: ignore[list-item]  # the mistake under test


def test_it_pickles_small_and_by_reference() -> None:
    function = partial(athena.map_batches, columns={"text": "answer"}, tools=[{"name": "f"}])
    for packed in (pickle.dumps(function), cloudpickle.dumps(function)):
        assert len(packed) < 500
        assert names(pickle.loads(packed)(pyarrow.table({"answer": [CALL]}))) == [["f"]]


def test_without_pyarrow_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import athena\n"
        "print(next(athena.parse_batch([{'text': 'a'}]))['text'])\n"
        "try: athena.map_batches(None)\n"
        "except ImportError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["a", "athena.map_batches works on Arrow batches: pip install pyarrow"]


def test_the_spark_schema_names_the_same_columns() -> None:
    schema = spark_schema("bigint")
    for name in outcome_schema().names:
        assert f"{name} " in schema

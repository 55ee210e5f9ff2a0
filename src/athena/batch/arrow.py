"""Records as Arrow batches: the function that Ray Data, Spark and Dask map over a dataset.

The frameworks differ in what they hand over: Ray a table, Dask a data frame or whatever was delayed, Spark an iterator of
record batches or of data frames. `map_batches` takes each and gives the same kind back, so one name serves them all. It keeps
nothing between batches and pickles by reference: athena must be installed where the workers run.

pyarrow is imported when a batch arrives, and pandas only for a data frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from athena.batch.records import Outcome, RecordParser
from athena.errors import UsageError
from athena.formats.machine.policies import EchoRule, RepairLevel
from athena.model.names import FormatName
from athena.parsing import Tools
from athena.wire.surrogates import without_lone_surrogates

if TYPE_CHECKING:
    import pyarrow

Batch = TypeVar("Batch")

FIELDS = ("id", "format", "model", "tools", "text", "chunks", "channel", "starts_in_thinking", "untrusted")
"""What a record may hold, and the names of the columns unless `columns` says otherwise."""

_SPARK_COLUMNS = (
    "format string, text string, thinking string, tool_calls array<struct<id: string, name: string, arguments: string>>, "
    "incomplete boolean, errors array<struct<code: string, message: string>>"
)


def map_batches(
    batch: Batch,
    *,
    columns: Mapping[str, str] | None = None,
    format: FormatName | str = "auto",  # noqa: A002 - the word users know
    model: str | None = None,
    tools: Tools | None = None,
    repair: RepairLevel = "syntax",
    echo: EchoRule = "text",
) -> Batch:
    """Parse a batch of a distributed dataset; made to be handed to Ray Data, Spark and Dask as it is.

    - Ray Data: `dataset.map_batches(athena.map_batches, batch_format="pyarrow")`
    - Spark: `frame.mapInArrow(athena.map_batches, spark_schema("bigint"))`, or `mapInPandas`; `spark_schema` is in
      `athena.batch`
    - Dask: `frame.map_partitions(athena.map_batches)`, or `dask.delayed(athena.map_batches)(batch)`

    Settings are handed over with `functools.partial(athena.map_batches, columns={"text": "answer"})`, which pickles.

    The columns that are read are the fields of a record: `text` or `chunks` and, as far as there are any, `id`, `format`,
    `model`, `tools`, `channel`, `starts_in_thinking`, `untrusted` (a list of texts). Others are ignored. `tools` is JSON text
    (best, because Arrow lists every field of any tool in all of them) or nested values, whose empty fields count as absent.

    The result has the columns of `athena.batch.outcome_schema`: `id` is the given column, unchanged, and null where there is
    none; a data frame also keeps its index, and has Arrow types. A row that cannot be read has one error with the code
    `bad_record`, and the others are done.

    Args:
        batch: A `pyarrow.Table`, a `pyarrow.RecordBatch`, a pandas data frame, or an iterator of any of these.
        columns: The name of a field's column where it is not the field's own, such as `{"text": "answer"}`.
        format: The format to look for in rows that do not say, or `auto`.
        model: The model of rows that do not say: its usual format is looked for first.
        tools: The tools of rows that do not say, in any API's shape.
        repair: Repair of broken arguments: `off`, `syntax` or `schema`.
        echo: What becomes of calls that are quoted from `untrusted`: they stay `text`, are an `error`, or are calls (`allow`).

    Returns:
        The same kind of thing, with a row for each row, in order.

    Raises:
        UsageError: The batch is of another kind, a column is not there, or `format` is unknown.
        InvalidRequest: `tools` cannot be used.
        ImportError: pyarrow is not installed.

    Examples:
        >>> import pyarrow
        >>> table = pyarrow.table({"id": [7], "text": ['<tool_call>{"name": "get_time", "arguments": {}}</tool_call>']})
        >>> map_batches(table).column("tool_calls").to_pylist()[0][0]["name"]
        'get_time'
    """
    mapper = _Mapper(columns or {}, RecordParser(format=format, model=model, tools=tools, repair=repair, echo=echo))
    if isinstance(batch, Iterator):
        return cast("Batch", (mapper.one(each) for each in batch))
    return cast("Batch", mapper.one(batch))


def outcome_schema(id_type: pyarrow.DataType | None = None) -> pyarrow.Schema:
    """The columns that `map_batches` gives; `id_type` is the type of the `id` column that goes in (default: string)."""
    arrow = _pyarrow()
    text = arrow.string()
    call = arrow.struct([("id", text), ("name", text), ("arguments", text)])
    problem = arrow.struct([("code", text), ("message", text)])
    schema: pyarrow.Schema = arrow.schema(
        [
            ("id", text if id_type is None else id_type),
            ("format", text),
            ("text", text),
            ("thinking", text),
            ("tool_calls", arrow.list_(call)),
            ("incomplete", arrow.bool_()),
            ("errors", arrow.list_(problem)),
        ]
    )
    return schema


def spark_schema(id_type: str = "string") -> str:
    """The same columns as Spark's `mapInArrow` and `mapInPandas` want them; `id_type` is the type of the `id` column.

    Examples:
        >>> spark_schema("bigint").split(", ")[:3]
        ['id bigint', 'format string', 'text string']
    """
    return f"id {id_type}, {_SPARK_COLUMNS}"


class _Mapper:
    """Maps single batches, whatever kind each is of."""

    def __init__(self, columns: Mapping[str, str], parser: RecordParser) -> None:
        unknown = sorted(columns.keys() - set(FIELDS))
        if unknown:
            raise UsageError(f"columns: {unknown[0]!r} is no field of a record; these are: {', '.join(FIELDS)}")
        self._arrow = _pyarrow()
        self._columns = columns
        self._parser = parser

    def one(self, batch: object) -> object:
        """The outcomes of one batch, as a batch of the same kind."""
        if isinstance(batch, self._arrow.Table):
            return self._table(batch)
        if isinstance(batch, self._arrow.RecordBatch):
            return self._record_batch(batch)
        if hasattr(batch, "columns") and hasattr(batch, "index") and hasattr(batch, "dtypes"):
            return self._frame(batch)
        raise UsageError(
            f"a batch must be a pyarrow Table or RecordBatch, a pandas DataFrame, or an iterator of them, not {type(batch)}; "
            'with Ray Data say batch_format="pyarrow"'
        )

    def _table(self, table: pyarrow.Table) -> pyarrow.Table:
        # Batch by batch: a large table is never there as Python values all at once.
        done = [self._record_batch(part) for part in table.to_batches()]
        names = self._present(table.schema.names)
        id_type = table.schema.field(names["id"]).type if "id" in names else None
        found: pyarrow.Table = self._arrow.Table.from_batches(done, outcome_schema(id_type))
        return found

    def _record_batch(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        names = self._present(batch.schema.names)
        values = {field: _cells(batch.column(name)) for field, name in names.items() if field != "id"}
        outcomes = self._outcomes(values, batch.num_rows)
        ids = batch.column(names["id"]) if "id" in names else self._arrow.nulls(batch.num_rows, self._arrow.string())
        arrays = self._arrays(outcomes)
        found: pyarrow.RecordBatch = self._arrow.RecordBatch.from_arrays(
            [ids, *arrays.values()], schema=outcome_schema(ids.type)
        )
        return found

    def _frame(self, frame: Any) -> Any:
        import pandas  # type: ignore[import-untyped]  # pandas has no types of its own

        names = self._present([name for name in frame.columns if isinstance(name, str)])
        values = {field: self._frame_cells(pandas, frame[name]) for field, name in names.items() if field != "id"}
        arrays = self._arrays(self._outcomes(values, len(frame)))
        if "id" in names:
            ids = frame[names["id"]]
        else:
            ids = self._arrow_series(pandas, self._arrow.nulls(len(frame), self._arrow.string()), frame.index)
        found = {name: self._arrow_series(pandas, array, frame.index) for name, array in arrays.items()}
        return pandas.DataFrame({"id": ids, **found}, index=frame.index)

    def _arrow_series(self, pandas: Any, array: pyarrow.Array[Any], index: Any) -> Any:
        return pandas.Series(pandas.arrays.ArrowExtensionArray(self._arrow.chunked_array([array])), index=index)

    def _frame_cells(self, pandas: Any, series: Any) -> list[Any]:
        """Arrow turns arrays in cells into lists and every kind of missing value into None, but takes no mixed columns."""
        refusals = (self._arrow.ArrowInvalid, self._arrow.ArrowTypeError, self._arrow.ArrowNotImplementedError)
        try:
            return _cells(self._arrow.Array.from_pandas(series))
        except (*refusals, UnicodeEncodeError):
            cells = (cell.tolist() if hasattr(cell, "tolist") else cell for cell in series.tolist())
            return [None if pandas.isna(cell) is True else cell for cell in cells]

    def _present(self, names: Sequence[str]) -> dict[str, str]:
        """The column of each field that has one. Raises UsageError if a named one or the text is missing."""
        wanted = {field: self._columns.get(field, field) for field in FIELDS}
        missing = [name for name in self._columns.values() if name not in names]
        found = {field: name for field, name in wanted.items() if name in names}
        if missing or not ("text" in found or "chunks" in found):
            what = repr(missing[0]) if missing else f"{wanted['text']!r} or {wanted['chunks']!r}"
            raise UsageError(f"there is no column {what}; there are: {', '.join(names) or 'none'}; name yours with columns=")
        return found

    def _outcomes(self, values: dict[str, list[Any]], count: int) -> list[Outcome]:
        if not count:
            return []
        if "tools" in values:
            values["tools"] = [_without_empty_fields(tools) for tools in values["tools"]]
        return [self._parser.mapping(dict(zip(values, row, strict=True))) for row in zip(*values.values(), strict=True)]

    def _arrays(self, outcomes: list[Outcome]) -> dict[str, pyarrow.Array[Any]]:
        rows = [cast("dict[str, Any]", outcome) for outcome in outcomes]
        return {field.name: self._array([row[field.name] for row in rows], field.type) for field in list(outcome_schema())[1:]}

    def _array(self, values: list[Any], kind: pyarrow.DataType) -> pyarrow.Array[Any]:
        array: pyarrow.Array[Any]
        try:
            array = self._arrow.array(values, type=kind)
        except UnicodeEncodeError:
            # Half characters, which a call's escapes can make: Arrow's text is UTF-8 and has none.
            array = self._arrow.array(msgspec.json.decode(without_lone_surrogates(json.dumps(values).encode())), type=kind)
        return array


def _cells(array: pyarrow.Array[Any]) -> list[Any]:
    """The values of a column. Bytes that are no UTF-8, which Arrow does not refuse, cost themselves and not the batch."""
    try:
        return array.to_pylist()
    except UnicodeDecodeError:
        return [_cell(scalar) for scalar in array]


def _cell(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if hasattr(scalar, "as_buffer"):
            return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
        return [_cell(each) for each in scalar.values]


def _without_empty_fields(value: Any) -> Any:
    """Arrow gives every object all fields that any of them has: what is null was not there."""
    if isinstance(value, dict):
        return {name: _without_empty_fields(field) for name, field in value.items() if field is not None}
    return [_without_empty_fields(each) for each in value] if isinstance(value, list) else value


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("athena.map_batches works on Arrow batches: pip install pyarrow") from error
    return pyarrow

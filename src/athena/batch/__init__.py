"""Many model texts at once: datasets, logs, `athena parse --jsonl`, and workers of Ray, Spark or Dask.

One record in, one record out, in order, whatever is wrong with it: a record that cannot be read comes out with the reason in
its `errors`. Nothing is shared between records but caches, so any tool that maps functions over batches can run this.

Record in: `{"id"?, "format"?, "model"?, "tools"?, "text" | "chunks": [...], "channel"?, "starts_in_thinking"?}`.
Record out: `{"id", "format", "text", "thinking", "tool_calls": [{"id", "name", "arguments"}], "incomplete", "errors"}`.

`records` is what both sides mean and how one becomes the other; `lines` reads them as JSON lines, `arrow` as Arrow batches.
"""

from athena.batch.arrow import map_batches, outcome_schema, spark_schema
from athena.batch.records import FoundCall, Outcome, Problem, parse_batch

__all__ = ["FoundCall", "Outcome", "Problem", "map_batches", "outcome_schema", "parse_batch", "spark_schema"]

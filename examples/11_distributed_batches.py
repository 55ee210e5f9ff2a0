"""Logs that outgrow one machine: `athena.map_batches` runs unchanged in Dask, Ray Data and Spark, on Arrow batches.

    python examples/11_distributed_batches.py            # Dask, here (pip install 'dask[dataframe]')

    ds.map_batches(athena.map_batches, batch_format="pyarrow")               # Ray Data
    df.mapInArrow(athena.map_batches, athena.batch.spark_schema("bigint"))   # Spark

One row out for each row in, the same as `athena parse --jsonl` writes.
"""

from functools import partial

import dask.dataframe

import athena

answers = [f'<tool_call>\n{{"name": "search", "arguments": {{"page": {n}}}}}\n</tool_call>' for n in range(999)]
answers.append('<tool_call>\n{"name": "search", "arguments": {"pa')

dataset = dask.dataframe.from_dict({"id": range(1000), "answer": answers}, npartitions=4)
outcomes = dataset.map_partitions(partial(athena.map_batches, columns={"text": "answer"})).compute()

print(outcomes.dtypes["tool_calls"])
print("calls:", int(outcomes["tool_calls"].map(len).sum()), "in", len(outcomes), "answers")
print("cut off:", outcomes[outcomes["incomplete"]]["id"].tolist())
print("the last one:", outcomes["tool_calls"].iloc[998][0])

"""`map_batches` in a real Ray and a real Spark, each with workers of its own, on this machine only.

Deselected by default: both are large, and Spark needs Java. CONTRIBUTING.md says how to run this.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import pytest

import athena
from athena.batch import spark_schema
from support.batch_records import as_table, outcome_lines, records

pytestmark = [
    pytest.mark.distributed,
    # The engines' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
COUNT = 600
PARTS = 4


@pytest.fixture(scope="module")
def wanted() -> bytes:
    """What the same function makes of the same rows in this process; the tests of Dask compare that with the command line."""
    return outcome_lines(athena.map_batches(as_table(records(COUNT, unreadable_every=50))).to_pylist())


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    # Ray takes the machine's outer address even when given 127.0.0.1; this is its switch for the inner one.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # Else it writes one into the home folder.
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    module: Any = import_module("ray")
    module.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield import_module("ray.data")
    module.shutdown()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder: Any = import_module("pyspark.sql").SparkSession.builder
    session = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "70")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_ray_data(ray: Any, wanted: bytes) -> None:
    dataset = ray.from_arrow(as_table(records(COUNT, unreadable_every=50))).repartition(PARTS)
    mapped = dataset.map_batches(athena.map_batches, batch_format="pyarrow", batch_size=70)
    assert outcome_lines(mapped.sort("id").take_all()) == wanted


def test_ray_data_with_settings(ray: Any) -> None:
    dataset = ray.from_items([{"answer": '<tool_call>{"name": "f", "arguments": {}}</tool_call>'}] * 8)
    for settings in (
        {"fn": partial(athena.map_batches, columns={"text": "answer"}, tools=[{"name": "f"}])},
        {"fn": athena.map_batches, "fn_kwargs": {"columns": {"text": "answer"}, "tools": [{"name": "f"}]}},
    ):
        rows = dataset.map_batches(**settings, batch_format="pyarrow").take_all()
        assert [call["name"] for row in rows for call in row["tool_calls"]] == ["f"] * 8


@pytest.mark.parametrize("way", ["mapInArrow", "mapInPandas"])
def test_spark(spark: Any, wanted: bytes, way: str) -> None:
    frame = spark.createDataFrame(as_table(records(COUNT, unreadable_every=50))).repartition(PARTS)
    mapped = getattr(frame, way)(athena.map_batches, spark_schema("bigint"))
    rows = [row.asDict(recursive=True) for row in mapped.orderBy("id").collect()]
    assert outcome_lines(rows) == wanted


@pytest.mark.parametrize("way", ["mapInArrow", "mapInPandas"])
def test_spark_with_settings(spark: Any, way: str) -> None:
    frame = spark.createDataFrame([('<tool_call>{"name": "f", "arguments": {}}</tool_call>',)] * 8, "answer string")
    function = partial(athena.map_batches, columns={"text": "answer"}, tools=[{"name": "f"}])
    rows = getattr(frame, way)(function, spark_schema()).collect()
    assert [call.name for row in rows for call in row.tool_calls] == ["f"] * 8

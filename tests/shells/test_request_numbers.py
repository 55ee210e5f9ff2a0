"""What is counted of a request, under which labels."""

from __future__ import annotations

from athena.serving.record import RequestRecord
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.numbers import Numbers
from athena.shells.gateway.taps import RequestNumbers


def test_tokens_are_counted_per_model_and_key() -> None:
    metrics = Metrics(Numbers())
    numbers = RequestNumbers(metrics, model_label=lambda model: model)
    for key, count in (("ada", 3), ("ada", 4), ("bob", 5)):
        record = RequestRecord("r", key=key, upstream="lab", input_tokens=count, output_tokens=1)
        record.upstream_model = "kimi-k2"
        numbers.over(record)
    counted = {line for line in metrics.render().decode().splitlines() if line.startswith("athena_tokens_total")}
    assert 'athena_tokens_total{key="ada",kind="input",model="kimi-k2",upstream="lab"} 7.0' in counted
    assert 'athena_tokens_total{key="bob",kind="output",model="kimi-k2",upstream="lab"} 1.0' in counted

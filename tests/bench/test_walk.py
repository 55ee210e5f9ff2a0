"""What the walk counts, on sources that are small enough to count by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks.walk.structure import counts

HOLDER = """
class Driver:
    def __init__(self, client, loop):
        self._paused: bool = False
        self._over, self._name = False, ""
        client.on_gone = self.stop
        client.on_drained = lambda: self.stop()
        self._timer = loop.call_later(1, partial(self.stop, 2))
        self._each(lambda tap: tap.over())

    @property
    def paused(self):
        return self._paused

    def stop(self, number=0):
        self._over = True
        return self.paused

    def _each(self, tell):
        tell(self)
"""
BODY = """
from athena.shells.config import Config
from athena.shells.gateway.retries import pause
from athena.shells.gateway import targets

class Body:
    def read(self):
        return 1
"""


def test_what_a_request_s_state_is_made_of(tmp_path: Path) -> None:
    for name, text in {"shells/gateway/driver.py": HOLDER, "transport/bodies.py": BODY, "serving/clock.py": "X = 1\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert counts(tmp_path) == {
        "flags of a request's state": 2,
        "classes that set timers of their own": 1,
        "functions given to other objects to call": 3,
        "lines of the drivers (gateway and transport)": 28,
        "lines of the serving core, without IO": 1,
        "lines of all of the package": 29,
        "imports from the transport into `shells.gateway`": 2,
        "imports into `shells` from packages beside it": 3,
    }

"""Restoring: what cannot be seen from one exchange alone."""

from __future__ import annotations

from typing import get_args

from athena import restore
from athena.model.events import Event


def test_every_event_has_a_step() -> None:
    assert set(restore._STEPS) == set(restore._STEPS_WITH_STOPS) == set(get_args(Event))

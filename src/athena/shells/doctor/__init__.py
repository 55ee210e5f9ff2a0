"""`athena doctor`: every step from the configuration to a tool call, each with what was tried, what came back and the remedy.

`checkup` goes through the steps, `asking` speaks to the upstream, `diagnosis` says what an answer means. Nothing is changed,
and the only requests that cost anything are three tiny ones.
"""

from athena.shells.doctor.checkup import CheckWish, check_up
from athena.shells.doctor.steps import PROBLEMS, CheckStep, StepState

__all__ = ["PROBLEMS", "CheckStep", "CheckWish", "StepState", "check_up"]

"""What is wrong with a configuration file. Apart from the reader, so that a start without any file need not load YAML."""

from __future__ import annotations

from athena.errors import ConfigProblem

MAX_FILE_BYTES = 1024 * 1024


class BadYaml(Exception):
    """The text is not YAML that we read."""

    def __init__(self, problem: ConfigProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem

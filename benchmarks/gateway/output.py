"""What every suite can do with its run: save it, or write it elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.gateway.results import Run, save, saved_file


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Options of every suite."""
    parser.add_argument("--save", action="store_true", help="keep this run as the one later runs are compared with")
    parser.add_argument("--out", metavar="FILE", help="write the run's figures to this file")


def deliver(run: Run, options: argparse.Namespace) -> None:
    """Do as the options say."""
    if options.out:
        save(run, Path(options.out))
    if options.save:
        save(run, saved_file(run.suite))

"""What every suite can do with its run: save it, write it into the docs, or elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.gateway.report import write_docs
from benchmarks.gateway.results import Run, save, saved_file


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Options of every suite."""
    parser.add_argument("--save", action="store_true", help="keep this run as the one later runs are compared with")
    parser.add_argument("--write-docs", action="store_true", help="save it and write docs/performance.md and its plots anew")
    parser.add_argument("--out", metavar="FILE", help="write the run's figures to this file")


def deliver(run: Run, options: argparse.Namespace) -> None:
    """Do as the options say."""
    if options.out:
        save(run, Path(options.out))
    if options.save or options.write_docs:
        save(run, saved_file(run.suite))
    if options.write_docs:
        write_docs()

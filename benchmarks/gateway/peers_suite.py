"""Peers: athena beside LiteLLM, llm-rosetta, claude-code-router and Portkey, those that are installed in `.peers`."""

from __future__ import annotations

import argparse
import sys

from benchmarks.gateway.cases import CASES, Case
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.output import add_output_options, deliver
from benchmarks.gateway.peers import PEERS, add_install_option, install, installed
from benchmarks.gateway.results import Figure, Run
from benchmarks.gateway.suite import chosen_cases, measure, print_tables
from benchmarks.gateway.systems import System, system_named

OURS = ("nginx", "athena-msg", "athena-chat")
TARGETS = {"litellm": {"n16": 50, "s16": 50, "p16": 10}, "": {"n16": 10, "s16": 3, "p16": 2}}
"""How many times as much CPU a peer should need, at least: LiteLLM, and the others."""


def main(arguments: list[str]) -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="./dev bench peers", description=__doc__)
    parser.add_argument("--cases", default="n16,s16,p16", help=f"of {','.join(CASES)}; default: %(default)s")
    parser.add_argument("--systems", default=",".join(PEERS), help="comma separated; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one repetition of half the requests")
    add_install_option(parser)
    add_output_options(parser)
    options = parser.parse_args(arguments)
    try:
        cases = chosen_cases(options.cases)
        wanted = [system_named(name) for name in options.systems.split(",") if name]
        if options.install:
            install([system.name for system in wanted if system.name in PEERS])
        systems = _ready(wanted)
        run = measure(
            "peers", systems, cases, repeats=1 if options.quick else options.repeats, share=0.5 if options.quick else 1
        )
    except CannotMeasure as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    run.figures += against_athena(run, cases)
    print_tables(run, cases)
    _print_ratios(run, cases)
    deliver(run, options)
    return 0


def _ready(wanted: list[System]) -> list[System]:
    missing = [system.name for system in wanted if system.name in PEERS and not installed(system.name)]
    if missing:
        print(f"bench: not installed: {', '.join(missing)} (--install puts them into .peers)", file=sys.stderr)
    found = [system for system in wanted if system.name not in missing]
    if not any(system.name in PEERS for system in found):
        raise CannotMeasure("no peer is installed; ./dev bench peers --install gets them (PyPI and npm)")
    return [*(system_named(name) for name in OURS if name not in {system.name for system in found}), *found]


def against_athena(run: Run, cases: list[Case]) -> list[Figure]:
    """CPU of a peer relative to Athena's for the same client dialect, in the same repetition; higher is better for us."""
    found = []
    for case in cases:
        for name, peer in PEERS.items():
            theirs = run.find(case.name, name, "cpu")
            ours = run.find(case.name, "athena-msg" if peer.speaks == "messages" else "athena-chat", "cpu")
            errors = run.find(case.name, name, "errors")
            if theirs and ours and errors and not any(errors.values):
                ratios = [one / other for one, other in zip(theirs.values, ours.values, strict=True)]
                found.append(Figure(case.name, name, "by athena", "x", ratios))
    return found


def target(name: str, case: str) -> int | None:
    """The least ratio wanted."""
    return TARGETS.get(name.partition("-")[0], TARGETS[""]).get(case)


def _print_ratios(run: Run, cases: list[Case]) -> None:
    print(f"\nCPU of a peer relative to Athena's\n  {'peer':<16}" + "".join(f"{case.name:>12}" for case in cases))
    for name in PEERS:
        row = ""
        for case in cases:
            figure, least = run.find(case.name, name, "by athena"), target(name, case.name)
            row += f"{figure.middle:>7.1f} ({least or '-'})".rjust(12) if figure else f"{'-':>12}"
        if row.replace("-", "").strip():
            print(f"  {name:<16}{row}")
    print("  (in brackets: the least that is wanted)")

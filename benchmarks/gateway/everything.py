"""All: every suite, saved, and the docs written from them. The one command for a new set of published figures."""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks import micro
from benchmarks.gateway import peers_suite, report, suite
from benchmarks.gateway.peers import PEERS, installed
from benchmarks.gateway.scale import suite as scale_suite


def main(arguments: list[str]) -> int:
    """In the order of the page."""
    parser = argparse.ArgumentParser(prog="./dev bench all", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a rehearsal: nothing that is worth publishing")
    parser.add_argument("--install-peers", action="store_true", help="install the missing peers into .peers first")
    options = parser.parse_args(arguments)
    quick = ["--quick"] if options.quick else []
    began = time.monotonic()
    codes = {"gateway": suite.main([*quick, "--save"]), "scale": scale_suite.main([*quick, "--save"])}
    codes["micro"] = micro.main([*(["--repeats", "1"] if options.quick else []), "--save"])
    if options.install_peers or any(installed(name) for name in PEERS):
        codes["peers"] = peers_suite.main([*quick, "--save", *(["--install"] if options.install_peers else [])])
    else:
        print("bench: no peers in .peers: their saved figures stay (--install-peers)", file=sys.stderr)
    report.main([])
    failed = [name for name, code in codes.items() if code]
    print(f"\nall in {(time.monotonic() - began) / 60:.0f} minutes" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0

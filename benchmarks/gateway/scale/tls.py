"""TLS to the upstream: what it adds to the CPU per request and chunk, beside what it adds to nginx.

nginx on the load's core ends the TLS before the fake upstream; the certificate is made here, by openssl, for this run.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.gateway import processes
from benchmarks.gateway.bench import Bench, Running
from benchmarks.gateway.cases import CASES, CHUNKS, Case
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.results import Figure
from benchmarks.gateway.scale.effort import Effort
from benchmarks.gateway.systems import Place, nginx, system_named

SHOWN = ("n16", "s16", "p16")


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """Each system twice, once over TLS, interleaved."""
    certificate, key = make_certificate(bench.folder)
    origin = _tls_upstream(bench, certificate, key)
    trust = {"SSL_CERT_FILE": str(certificate)}
    systems = [system_named("nginx"), effort.athena("msg"), effort.athena("chat")]
    plain = [bench.start(system) for system in systems]
    over_tls = [bench.start(system, upstream=origin, environment=trust) for system in systems]
    for one in (*plain, *over_tls):
        for case in (CASES["n16"], CASES["s16"]):
            _cost(bench, one, case)
    found = []
    for name in SHOWN:
        case = CASES[name]
        costs = [
            [(_cost(bench, one, case), _cost(bench, other, case)) for one, other in zip(plain, over_tls, strict=True)]
            for _ in range(effort.repeats)
        ]
        for at, system in enumerate(systems):
            unit = "us per chunk" if case.streamed else "us per request"
            found.append(Figure(name, system.name, "cpu plain", unit, [row[at][0] for row in costs]))
            found.append(Figure(name, system.name, "cpu over TLS", unit, [row[at][1] for row in costs]))
            found.append(
                Figure(name, system.name, "TLS by plain", "x", [row[at][1] / row[at][0] for row in costs], judged=True)
            )
    return found


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Self-signed, for 127.0.0.1."""
    if shutil.which("openssl") is None:
        raise CannotMeasure("openssl makes the certificate and is not installed (Debian: apt-get install openssl)")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += [
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def _tls_upstream(bench: Bench, certificate: Path, key: Path) -> str:
    folder = bench.folder / "tls"
    folder.mkdir()
    place = Place(processes.free_port(), bench.upstream, folder)
    launch = nginx(place, listen=" ssl", server=f"ssl_certificate {certificate}; ssl_certificate_key {key};")
    bench.keep(processes.start(launch.command, cores={bench.load_core}, log=folder / "log", folder=folder))
    return f"https://127.0.0.1:{place.port}"


def _cost(bench: Bench, one: Running, case: Case) -> float:
    made = bench.ask(
        one,
        case.model,
        streamed=case.streamed,
        requests=case.count(slow=False, share=0.5),
        concurrent=case.concurrent,
        stamps=CHUNKS if case.streamed else 1,
    )
    if made.load.errors:
        raise RuntimeError(f"{one.system.name}: {made.load.error}")
    return made.cpu_us_per_chunk if case.streamed else made.cpu_us_per_request

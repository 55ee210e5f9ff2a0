"""The systems under test: a table of how each is started. A new option of `athena serve` is one more row.

`NAME@FOLDER` runs an athena row on the source of another checkout (`git worktree add`), beside this one in the same run.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.gateway.bodies import Dialect
from benchmarks.gateway.errors import CannotMeasure

CLIENT_KEY = "sk-measured"
"""No secret: the fake upstream takes any key."""


@dataclass(frozen=True)
class Place:
    """Where a system is to run."""

    port: int
    upstream: str
    """Its origin, as in http://127.0.0.1:9000."""
    folder: Path
    models: tuple[str, ...] = ("fake-p0", "fake-p5000", "fake-p20000", "fake-p5000-n300", "fake-p1000-n20")
    """What the upstream serves: some peers must know the names beforehand."""


@dataclass(frozen=True)
class Launch:
    """How to run it there."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    """That clients must send."""
    model_prefix: str = ""
    """Written before the model name."""


@dataclass(frozen=True)
class System:
    """One system under test; without a launch, clients go straight to the upstream."""

    name: str
    speaks: Dialect
    """What its clients speak."""
    launch: Callable[[Place], Launch] | None
    reference: str = "nginx"
    """The system its figures are divided by."""
    slow: bool = False
    cores: int = 1


NGINX = """\
worker_processes 1; daemon off; error_log stderr crit; pid {folder}/nginx.pid;
worker_rlimit_nofile 20000;
events {{ worker_connections 9000; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 64m;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 1000000; tcp_nodelay on;
  upstream model {{ server {address}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port}{listen};
    location / {{
      proxy_pass {scheme}://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s; {location}
    }}
  }}
}}
"""


def nginx_command() -> str:
    """The program; Debian puts it where a user's PATH may not look."""
    found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        raise CannotMeasure("nginx is the reference and is not installed (Debian: apt-get install nginx-light)")
    return found


def nginx(place: Place, *, listen: str = "", server: str = "", location: str = "") -> Launch:
    """A relay that hands each read on at once."""
    scheme, _, address = place.upstream.partition("://")
    text = NGINX.format(folder=place.folder, port=place.port, address=address, scheme=scheme, listen=listen, location=location)
    text = text.replace("    location /", f"    {server}\n    location /") if server else text
    file = place.folder / "nginx.conf"
    file.write_text(text)
    return Launch([nginx_command(), "-p", str(place.folder), "-c", str(file)])


def relay(place: Place) -> Launch:
    """Our floor in Python."""
    upstream_port = place.upstream.rpartition(":")[2]
    return Launch([sys.executable, str(Path(__file__).with_name("relay.py")), str(place.port), upstream_port])


def athena(*flags: str) -> Callable[[Place], Launch]:
    """`athena serve` as it comes, with these flags."""

    def launch(place: Place) -> Launch:
        serve = ["serve", "--port", str(place.port), "--base-url", place.upstream + "/v1"]
        home = {"HOME": str(place.folder), "XDG_CONFIG_HOME": str(place.folder)}
        return Launch(
            [sys.executable, "-m", "athena", *serve, *flags],
            home | {"ATHENA_API_KEY": CLIENT_KEY},
            (f"Authorization: Bearer {CLIENT_KEY}",),
        )

    return launch


def athena_many(*flags: str) -> Callable[[Place], Launch]:
    """With more connections to the upstream than the 1,024 that are allowed unasked."""

    def launch(place: Place) -> Launch:
        upstream = {"base_url": place.upstream + "/v1", "api_key": CLIENT_KEY, "max_connections": 20_000}
        file = place.folder / "many.yml"
        file.write_text(json.dumps({"upstreams": {"fake": upstream}, "models": [{"match": "*", "use": "fake"}]}))
        command = [sys.executable, "-m", "athena", "serve", "--config", str(file), "--port", str(place.port)]
        home = {"HOME": str(place.folder), "XDG_CONFIG_HOME": str(place.folder)}
        return Launch([*command, *flags], home, (f"Authorization: Bearer {CLIENT_KEY}",))

    return launch


SAME_DIALECT = ("--dialect", "anthropic_messages")

SYSTEMS = {
    system.name: system
    for system in (
        System("direct", "chat", None),
        System("nginx", "chat", nginx),
        System("nginx-msg", "messages", nginx, reference="nginx-msg"),
        System("relay", "chat", relay),
        System("athena-msg", "messages", athena()),
        System("athena-chat", "chat", athena()),
        System("athena-pass", "messages", athena(*SAME_DIALECT), reference="nginx-msg"),
        System("athena-msg-2w", "messages", athena("--workers", "2"), cores=2),
        System("athena-msg-many", "messages", athena_many()),
        System("athena-chat-2w", "chat", athena("--workers", "2"), cores=2),
    )
}
USUAL = ("direct", "nginx", "nginx-msg", "relay", "athena-msg", "athena-chat", "athena-pass")


def system_named(name: str) -> System:
    """A row of the table, perhaps on another checkout."""
    from benchmarks.gateway.peers import PEERS

    base, _, folder = name.partition("@")
    found = (SYSTEMS | PEERS).get(base)
    if found is None:
        raise CannotMeasure(f"no system {base!r}; there are {', '.join([*SYSTEMS, *PEERS])}")
    return replace(found, name=name, launch=_on_checkout(found, Path(folder))) if folder else found


def _on_checkout(system: System, folder: Path) -> Callable[[Place], Launch]:
    original = system.launch
    source = folder.resolve() / "src"
    if original is None or not system.name.startswith("athena"):
        raise CannotMeasure(f"{system.name} does not come from a checkout")
    if not (source / "athena").is_dir():
        raise CannotMeasure(f"{folder} holds no checkout of athena")

    def launch(place: Place) -> Launch:
        made = original(place)
        return replace(made, environment=made.environment | {"PYTHONPATH": str(source)})

    return launch

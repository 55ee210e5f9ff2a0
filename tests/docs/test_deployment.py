"""The files of `deploy` are what the programs that read them take, and fit one another."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from athena.shells.config import Sources, load
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.numbers import Numbers
from support.certificates import Authority
from support.code_blocks import ROOT
from support.patience import PATIENCE

DEPLOY = ROOT / "deploy"
SECRETS = {"OPENROUTER_API_KEY": "value", "GATEWAY_KEY": "ath_a-key-for-this-test", "ENVELOPE_KEY": "0" * 64}


def document(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def program(name: str, package: str, *, is_installed: bool = False) -> str:
    """A program that checks files; `is_installed`: by ./dev test, so that CI has it."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if found is None:
        reason = f"{name} is not installed (Debian: {package})"
        if is_installed and os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    loaded = load(Sources(config_file=DEPLOY / "athena.yml", directory=tmp_path, home=tmp_path, environment=SECRETS))
    assert loaded.warnings == ()
    assert loaded.config.host == "0.0.0.0"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    command = program("systemd-analyze", "systemd")  # not to be installed for a test: it would be the machine's init
    text = (DEPLOY / "athena.service").read_text("utf-8")
    [installed] = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
    unit = tmp_path / "athena.service"
    unit.write_text(text.replace(installed, str(Path(sys.executable).parent / "athena")), "utf-8")
    ran = verify_unit(command, unit)
    assert (ran.returncode, ran.stderr) == (0, "")
    unit.write_text(text.replace("[Service]", "[Service]\nNoSuchSetting=1"), "utf-8")
    assert "NoSuchSetting" in verify_unit(command, unit).stderr


def verify_unit(command: str, unit: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_a_stop_waits_for_open_answers() -> None:
    """Longer than `timeouts.drain_s`, wherever something stops a gateway."""
    unit = (DEPLOY / "athena.service").read_text("utf-8")
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)", unit, re.MULTILINE)
    manifest, _ = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "athena.yaml").read_text("utf-8")))
    compose = document("compose.yml")["services"]["athena"]["stop_grace_period"]
    grace = manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert min(int(seconds), int(compose.removesuffix("s")), grace) > 30


def test_nginx_takes_its_file(tmp_path: Path) -> None:
    command = program("nginx", "nginx-light", is_installed=True)
    certificate, key = Authority(tmp_path).issue("gateway.example", "gateway")
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    text = text.replace("/etc/nginx/tls/fullchain.pem", str(certificate)).replace("/etc/nginx/tls/privkey.pem", str(key))
    ran = check_nginx(command, text, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "warn" not in ran.stderr
    assert check_nginx(command, text.replace("proxy_pass", "proxy_past"), tmp_path).returncode == 1


def check_nginx(command: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n{places}{text} }}\n", "utf-8"
    )
    arguments = [command, "-t", "-q", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_proxies_pass_streams_on() -> None:
    nginx = (DEPLOY / "nginx.conf").read_text("utf-8")
    caddy = (DEPLOY / "Caddyfile").read_text("utf-8")
    assert "proxy_buffering off;" in nginx
    assert "proxy_http_version 1.1;" in nginx
    assert "flush_interval -1" in caddy
    assert caddy.count("{") == caddy.count("}")
    assert {int(value) for value in re.findall(r"read_timeout (\d+)s", nginx + caddy)} == {120}


def test_compose_files_fit_together() -> None:
    services = document("compose.yml")["services"] | document("compose.tls.yml")["services"]
    assert set(services["caddy"]["depends_on"]) == {"athena"}
    built = services["athena"]["build"]
    assert ((DEPLOY / built["context"]).resolve() / built["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    assert "reverse_proxy athena:12377" in (DEPLOY / "Caddyfile").read_text("utf-8")
    [mounted] = [volume for volume in services["caddy"]["volumes"] if "Caddyfile" in volume]
    assert mounted.endswith("/deploy/Caddyfile:/etc/caddy/Caddyfile:ro")


def test_the_manifest_fits_the_container_and_the_configuration() -> None:
    deployment, service = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "athena.yaml").read_text("utf-8")))
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert container["ports"] == [{"name": "http", "containerPort": document("athena.yml")["port"]}]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["args"] == ["serve", "--config", "/etc/athena/athena.yml"]
    image = (DEPLOY / "Containerfile").read_text("utf-8")
    assert f"--uid {pod['securityContext']['runAsUser']} " in image
    assert 'ENTRYPOINT ["athena"]' in image
    assert [container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")] == ["/ready", "/health"]


def known_series() -> dict[str, set[str]]:
    """Every series of /metrics and its labels, as the page of them says; its names are those that are rendered."""
    numbers = Numbers()
    Metrics(numbers)
    rendered = dict(re.findall(r"^# TYPE (\S+) (\w+)$", numbers.render().decode(), re.MULTILINE))
    page = (ROOT / "docs" / "observability.md").read_text("utf-8")
    rows = re.findall(r"^\| `(athena_\w+)` \| (counter|gauge|histogram) \| ([^|]*) \|", page, re.MULTILINE)
    assert {name: kind for name, kind, _ in rows} == rendered
    found: dict[str, set[str]] = {}
    for name, kind, labels in rows:
        names = [f"{name}_{end}" for end in ("bucket", "sum", "count")] if kind == "histogram" else [name]
        found |= {series: {*re.findall(r"`(\w+)`", labels), "le"} for series in names}
    return found


@pytest.mark.parametrize(("folder", "name"), [("grafana", "athena.json"), ("prometheus", "alerts.yml")])
def test_what_is_watched_is_there(folder: str, name: str) -> None:
    """Metrics and labels of the dashboard and of the alerts exist."""
    value = yaml.safe_load((DEPLOY / folder / name).read_text("utf-8"))  # JSON is YAML
    expressions = list(queries(value))
    assert len(expressions) >= 5
    series = known_series()
    for expression in expressions:
        used = re.findall(r"\bathena_\w+", expression)
        assert used, expression
        assert [one for one in used if one not in series] == [], expression
        known = set.union(*(series[one] for one in used))
        grouped = [label.strip() for labels in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in labels.split(",")]
        filtered = re.findall(r"[{,](\w+)=", expression)
        assert [label for label in (*grouped, *filtered) if label not in known] == [], expression


def queries(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["expr"]] if isinstance(value.get("expr"), str) else []
        return own + [query for inner in value.values() for query in queries(inner)]
    if isinstance(value, list):
        return [query for inner in value for query in queries(inner)]
    return []


def test_the_dashboard_has_no_two_panels_in_one_place() -> None:
    panels = json.loads((DEPLOY / "grafana" / "athena.json").read_text("utf-8"))["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)

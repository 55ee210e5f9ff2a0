"""Sessions that leave the gateway: what belongs together still does in a file and in a page, also when it is redacted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from athena.recording import file
from athena.recording.lines import Payload, Recording
from athena.recording.show import prefix_of
from athena.shells.cli import cli

SAMPLE = Path(__file__).parents[1] / "cases" / "recordings" / "leaked_call.athena"
AGENTS = ("", "", "explore", "", "explore")
"""Of the requests of one session, in their order: the agent itself, and one that it started."""


def turns() -> list[Recording]:
    """Requests of one session, each the one before of its agent and a message more; the last of the agent's own begins anew."""
    (sample,) = file.decode(SAMPLE.read_bytes())
    said = {agent: json.loads(sample.request.body.data) for agent in AGENTS}
    made = []
    for number, agent in enumerate(AGENTS):
        body = said[agent]
        if number == 3:
            body["messages"][0] = {"role": "user", "content": "Something quite different was asked here."}
        body["messages"].append({"role": "user", "content": f"Please look into turn {number} of {agent or 'mine'}."})
        data = json.dumps(body).encode()
        header = msgspec.structs.replace(sample.header, id=f"req_{number}", session="s-1", agent=agent, at=1000.0 + number)
        request = msgspec.structs.replace(sample.request, body=Payload.of(data))
        made.append(msgspec.structs.replace(sample, header=header, request=request))
    return made


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The session as a file, the newest first as the archive gives them."""
    path = tmp_path / "session.athena"
    path.write_bytes(b"".join(file.encode(recording) for recording in reversed(turns())))
    return path


def run(*arguments: str) -> str:
    return CliRunner().invoke(cli, ["record", *arguments], catch_exceptions=False, standalone_mode=False).output


@pytest.mark.parametrize("options", [[], ["--keep-text"]], ids=["redacted", "whole"])
def test_a_page_compares_each_request_with_the_one_before_it(kept: Path, options: list[str]) -> None:
    run("export", str(kept), "--html", "-o", str(kept.with_suffix(".html")), *options)
    page = kept.with_suffix(".html").read_text()
    views: list[dict[str, Any]] = list(map(json.loads, re.findall(r'<script type="application/json"[^>]*>(.*)</script>', page)))
    shown = [view["row"]["id"] for view in reversed(views)]
    prefixes = [view.get("prefix") for view in reversed(views)]
    assert prefixes[0] is None
    assert prefixes[2] is None, "the first request of its agent"
    requests = [turn.request.body.data for turn in turns()]
    for at, before in ((1, 0), (3, 1), (4, 2)):
        expected, found = prefix_of((shown[before], requests[before]), requests[at]), prefixes[at]
        assert found is not None
        assert (found["of"], found["common"], found["size"]) == (expected.of, expected.common, expected.size)
        if options:
            assert found == msgspec.to_builtins(expected)
        else:
            assert "different" not in json.dumps(found), "it shows what is redacted"


def test_the_redacted_exchanges_of_a_session_are_still_one(kept: Path) -> None:
    for command in ("export", "redact"):
        run(command, str(kept), "-o", str(kept.with_name("out.athena")))
        headers = [each.header for each in file.decode(kept.with_name("out.athena").read_bytes())]
        assert len({header.session for header in headers}) == 1
        assert [header.session == "s-1" for header in headers] == [False] * 5
        assert len({header.agent for header in headers}) == 2

"""The failing exchanges of a run as one page of the inspector, so that a report can link to each of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from athena.recording.show import view_of
from athena.shells.config import Config
from athena.shells.inspector import shared_page
from athena.shells.recorder.archive import Archive
from athena.shells.recorder.recorder import DATABASE
from athena.verify.runs import VerifyTrial
from athena.verify.verdicts import wrong_with


def write_exchanges(config: Config, trials: Iterable[VerifyTrial], file: Path) -> dict[str, str]:
    """Write those that are still in the archive into `file`, and return the address of each from beside it, by its id.

    Nothing is written where there is none. The texts are those of the cases, and credentials are in no recording: nothing is
    redacted, so that what is wrong can be seen.
    """
    path = Path(config.state_dir).expanduser() / DATABASE
    kept = {trial.recording: trial for trial in trials if trial.recording}
    if not kept or not path.exists():
        return {}
    with Archive(path) as archive:
        found = [recording for recording in map(archive.load, kept) if recording is not None]
    if not found:
        return {}
    labels = {name: f"{trial.case}, {trial.mode}: {', '.join(wrong_with(trial, 'raw'))}" for name, trial in kept.items()}
    page = shared_page(map(view_of, found), "Failing exchanges - athena verify", labels)
    file.write_text(page, encoding="utf-8")
    return {one.header.id: f"{quote(file.name)}#/x/{quote(one.header.id, safe='')}" for one in found}

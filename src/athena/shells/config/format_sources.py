"""Formats that a configuration names by file or by chat template, read once as long as the file stays the same."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from athena.errors import UsageError
from athena.formats.declared.description import FormatDescription
from athena.shells.config.model import FormatSource


def declared_source(source: FormatSource) -> FormatDescription:
    """The format of a source whose path is full. Raises what learning and loading raise."""
    name = source.file if source.file is not None else source.template
    assert name is not None  # the configuration was checked
    try:
        state = Path(name).stat()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from None
    return _read(name, source.file is None, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _read(name: str, is_template: bool, changed_ns: int, size: int) -> FormatDescription:
    """`changed_ns` and `size` tell one state of a file from another."""
    from athena.shells.templates.learn import learn_format, load_format  # most configurations need neither

    return learn_format(name) if is_template else load_format(name)

"""Where settings come from: flags, over `ATHENA_*` variables, over `./athena.yml`, over `~/.config/athena/athena.yml`.

`./athena.yml` counts only when it is trusted (`trust.py`): the current directory may be another person's repository.

Mappings are merged key by key, so a higher source may change one field of an upstream; lists and single values are replaced.
Of `api_key`, `api_key_env` and `api_key_file` the highest source's one counts.

`--config` reads only that file, and any fault of it stops the start. A file that was merely found is skipped with a warning
when it cannot be read or is not YAML at all, but bad values in it stop the start like any other; at a reload such a file is
refused as well, so that a half-saved file never throws a running gateway back to its defaults.
`.env` files are not read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from athena.errors import ConfigProblem
from athena.shells.config.bad_file import MAX_FILE_BYTES, BadYaml
from athena.shells.config.check import struct_fields
from athena.shells.config.model import Config, FlatKeys
from athena.shells.config.places import (
    RANK_DIRECTORY,
    RANK_ENVIRONMENT,
    RANK_FLAG,
    RANK_HOME,
    KeyPath,
    Layout,
    Report,
    SettingOrigin,
    Tree,
    nearest,
)
from athena.shells.config.trust import (
    FoundFile,
    TrustStanding,
    TrustStore,
    digest,
    lies_in,
    not_used,
    others_control,
)
from athena.shells.config.user_directories import config_directory, state_directory
from athena.shells.own_files import UnsafePlace

FILE_NAME = "athena.yml"
PREFIX = "ATHENA_"
CONFIG_VARIABLE = "ATHENA_CONFIG"
STATE_VARIABLE = "ATHENA_STATE_DIR"
SYSTEM_DIRECTORY = Path("/etc/athena")
KEY_SOURCES = ("api_key", "api_key_env", "api_key_file")

FLAGS = {
    "host": "--host",
    "port": "--port",
    "base_url": "--base-url",
    "api_key_env": "--api-key-env",
    "api_key": "--api-key",
    "model": "--model",
    "opus_model": "--model-opus",
    "sonnet_model": "--model-sonnet",
    "haiku_model": "--model-haiku",
    "dialect": "--dialect",
    "profile": "--profile",
    "workers": "--workers",
    "tls_cert": "--tls-cert",
    "tls_key": "--tls-key",
    "log_format": "--log-format",
    "log_level": "--log-level",
    "log_file": "--log-file",
}
"""The settings that have a flag, by key."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look. Everything is handed in, so a test or a reload sees exactly what it was given."""

    flags: Mapping[str, Any] = {}
    """Values by the keys of FLAGS; None is a flag that was not given."""
    are_arguments: bool = False
    """A Python program gave them: messages call them by their keys."""
    environment: Mapping[str, str] = {}
    config_file: Path | None = None
    """The one file to read; None: search."""
    directory: Path
    home: Path

    @classmethod
    def here(
        cls, flags: Mapping[str, Any] | None = None, config_file: str | Path | None = None, *, are_arguments: bool = False
    ) -> Sources:
        """The process's own directory, home and environment."""
        environment = dict(os.environ)
        chosen = config_file or environment.get(CONFIG_VARIABLE) or None
        return cls(
            flags=dict(flags or {}),
            are_arguments=are_arguments,
            environment=environment,
            config_file=Path(chosen).expanduser() if chosen else None,
            directory=Path.cwd(),
            home=Path.home(),
        )

    @property
    def trust_store(self) -> TrustStore:
        """Which files the user approved. No file decides where that is kept: a variable may, or it is the state directory."""
        chosen = self.environment.get(STATE_VARIABLE)
        return TrustStore(Path(chosen).expanduser() if chosen else state_directory(self.environment, self.home))

    @property
    def own_directories(self) -> tuple[Path, ...]:
        """Where a file needs no approval, because only the user or the system's administrator puts files there."""
        return (config_directory(self.environment, self.home), SYSTEM_DIRECTORY)

    def candidates(self) -> tuple[tuple[Path, int], ...]:
        """The files that may exist, the weakest first, with their rank."""
        if self.config_file is not None:
            return ((self.config_file, RANK_DIRECTORY),)
        return (
            (config_directory(self.environment, self.home) / FILE_NAME, RANK_HOME),
            (self.directory / FILE_NAME, RANK_DIRECTORY),
        )


class Gathered(msgspec.Struct):
    """All sources merged, and what was found on the way."""

    layout: Layout
    files: list[Path]
    """The files that were read."""
    found: list[FoundFile]
    problems: list[ConfigProblem]


def gather(sources: Sources, *, skip_unreadable: bool = True, in_use: Collection[Path] = ()) -> Gathered:
    """All sources merged. `in_use` names files that a running gateway goes by: that one of them lost its approval is an error,
    since without it the gateway would go on with half of its settings."""
    layout = Layout()
    gathered = Gathered(layout, [], [], [])
    problems = gathered.problems
    for file, rank in sources.candidates():
        explicit = sources.config_file is not None
        if not explicit and not file.exists():
            problems += _misnamed(file)
            continue
        label = _label(file, sources)
        try:
            found, data = _examined(file, label, sources, is_in_use=file in in_use)
            gathered.found.append(found)
            if data is None:
                problems += [found.notice] if found.notice is not None else []
                continue
            tree, lines = _read_yaml(decode_text(data, label), label)
        except BadYaml as error:
            skipped = not explicit and skip_unreadable
            remedy = "the file is skipped" if skipped else error.problem.remedy
            problems.append(error.problem._replace(fatal=not skipped, remedy=remedy))
            continue
        gathered.files.append(file)
        origins = {path: SettingOrigin(label, line, rank) for path, line in lines.items() if path}
        _merge(layout, tree, origins, ())
    _merge(layout, *_environment_layer(sources.environment, problems), ())
    _merge(layout, *_flag_layer(sources), ())
    return gathered


def _examined(file: Path, label: str, sources: Sources, *, is_in_use: bool) -> tuple[FoundFile, bytes | None]:
    """A file that is there, with its bytes if it is to be obeyed. Raises BadYaml for one that cannot be read."""
    if sources.config_file is not None:
        return FoundFile(file, TrustStanding.EXPLICIT), read_bytes(file, label)[0]
    if lies_in(file, sources.own_directories):
        data, info = read_bytes(file, label)
        problem = others_control(info, label, file)
        return (
            (FoundFile(file, TrustStanding.OWN), data)
            if problem is None
            else (FoundFile(file, TrustStanding.UNSAFE, problem), None)
        )
    try:
        approval = sources.trust_store.find(file)
    except UnsafePlace as error:
        notice = ConfigProblem(f"not used: what is trusted cannot be told, because {error}", "", label, None, "", is_in_use)
        return FoundFile(file, TrustStanding.UNTRUSTED, notice), None
    if approval is None:
        return FoundFile(file, TrustStanding.UNTRUSTED, not_used(file, label, TrustStanding.UNTRUSTED, fatal=is_in_use)), None
    data, _ = read_bytes(file, label)
    if approval.sha256 != digest(data):
        return FoundFile(file, TrustStanding.CHANGED, not_used(file, label, TrustStanding.CHANGED, fatal=is_in_use)), None
    return FoundFile(file, TrustStanding.TRUSTED), data


def _label(file: Path, sources: Sources) -> str:
    """The file as its reader would name it."""
    for base, prefix in ((sources.directory, ""), (sources.home, "~/")):
        if file.is_relative_to(base):
            return prefix + str(file.relative_to(base))
    return str(file)


def _misnamed(file: Path) -> list[ConfigProblem]:
    other = file.with_suffix(".yaml")
    if not other.exists():
        return []
    return [ConfigProblem("not read", "", str(other), None, f"name it {FILE_NAME}", False)]


def read_bytes(file: Path, label: str) -> tuple[bytes, os.stat_result]:
    """The content of a file, read once, and what the system knew about that same file. Raises BadYaml."""
    try:
        # Not blocking: a pipe in a file's place must not make anybody wait.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, "rb") as stream:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise BadYaml(ConfigProblem("is not a file", "", label))
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise BadYaml(ConfigProblem("does not exist", "", label)) from None
    except IsADirectoryError:
        raise BadYaml(ConfigProblem("is not a file", "", label)) from None
    except OSError as error:
        raise BadYaml(ConfigProblem(f"cannot be read: {error.strerror or error}", "", label)) from None
    if len(data) > MAX_FILE_BYTES:
        raise BadYaml(ConfigProblem(f"is larger than {MAX_FILE_BYTES} bytes", "", label))
    return data, info


def decode_text(data: bytes, label: str) -> str:
    """The text of a configuration file. Raises BadYaml."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadYaml(ConfigProblem("is not UTF-8 text", "", label)) from None


def _merge(layout: Layout, tree: Tree, origins: dict[KeyPath, SettingOrigin], path: KeyPath) -> None:
    """Lay a stronger source over the layout."""
    target: Any = layout.tree
    for step in path:
        target = target[step]
    if any(tree.get(key) is not None for key in KEY_SOURCES):
        for key in KEY_SOURCES:
            if tree.get(key) is None and key in target:
                layout.drop(*map(str, (*path, key)))
    for key, value in tree.items():
        here = (*path, key)
        if value is None and not _is_free(path):
            continue  # `limits:` with all its lines commented out sets nothing
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            layout.origins.setdefault(here, origins.get(here, SettingOrigin("")))
            _merge(layout, value, origins, here)
            continue
        if key in target:
            layout.drop(*map(str, here))
        target[key] = {} if isinstance(value, dict) else value
        if here in origins:
            layout.origins[here] = origins[here]
        if isinstance(value, dict):
            _merge(layout, value, origins, here)
        elif isinstance(value, list):
            layout.origins |= {inner: origin for inner, origin in origins.items() if inner[: len(here)] == here}


def _is_free(path: KeyPath) -> bool:
    """Inside an object that is sent on as it is, null is a value."""
    return any(step in ("provider", "body", "quirks") or str(step).endswith("_provider") for step in path)


def _flag_layer(sources: Sources) -> tuple[Tree, dict[KeyPath, SettingOrigin]]:
    given = {key: value for key, value in sources.flags.items() if value is not None}
    origins: dict[KeyPath, SettingOrigin] = {}
    for key in given:
        flag = key if sources.are_arguments else FLAGS.get(key, "--" + key.replace("_", "-"))
        origins[(key,)] = SettingOrigin(flag, None, RANK_FLAG, flag)
    return given, origins


def environment_names() -> dict[str, KeyPath]:
    """Every variable that is read, and the key it sets. `ATHENA_LIMITS__BODY_BYTES` is `limits.body_bytes`."""
    names: dict[str, KeyPath] = {}
    for struct in (FlatKeys, Config):
        for name, field in struct_fields(struct).items():
            names[PREFIX + name.upper()] = (name,)
            inner = field.type
            if isinstance(inner, inspect.StructType):
                for part in struct_fields(inner.cls):
                    names[f"{PREFIX}{name.upper()}__{part.upper()}"] = (name, part)
    return names


def _environment_layer(
    environment: Mapping[str, str], problems: list[ConfigProblem]
) -> tuple[Tree, dict[KeyPath, SettingOrigin]]:
    names = environment_names()
    layer = Layout()
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE or not environment[variable]:
            continue
        path = names.get(variable)
        if path is None:
            meant = nearest(variable, names)
            if meant is not None and _much_alike(variable, meant):
                problems.append(
                    ConfigProblem("unknown variable, not used", "", variable, None, f"did you mean {meant}?", False)
                )
            continue
        try:
            value = _environment_value(path, environment[variable])
        except BadYaml as error:
            problems.append(ConfigProblem(error.problem.message, "", variable))
            continue
        layer.put(path, value, SettingOrigin(variable, None, RANK_ENVIRONMENT, variable))
    return layer.tree, layer.origins


def _much_alike(variable: str, meant: str) -> bool:
    """A misspelt name, not another program's variable with our prefix."""
    return nearest(variable[len(PREFIX) :], [meant[len(PREFIX) :]]) is not None


def _environment_value(path: KeyPath, text: str) -> Any:
    """Text for single values; YAML, and so JSON, for lists and mappings."""
    kind: inspect.Type = _field_type(path)
    if isinstance(kind, inspect.VarTupleType):
        return _read_value(text) if text.lstrip().startswith("[") else re.split(r"[\s,]+", text.strip())
    if isinstance(kind, inspect.DictType | inspect.StructType):
        return _read_value(text)
    return text


def _field_type(path: KeyPath) -> inspect.Type:
    struct = FlatKeys if path[0] in struct_fields(FlatKeys) else Config
    kind = struct_fields(struct)[str(path[0])].type
    for step in path[1:]:
        assert isinstance(kind, inspect.StructType)
        kind = struct_fields(kind.cls)[str(step)].type
    return kind


_REFERENCE = re.compile(r"\$(?:\$(?=\{)|\{([^{}]*)\})")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.S)


def expand_variables(layout: Layout, environment: Mapping[str, str], report: Report) -> None:
    """`${NAME}` and `${NAME:-default}` in texts of files; `$${` stands for `${`. A missing variable is an error."""

    def expand(text: str, path: KeyPath) -> str:
        def replace(found: re.Match[str]) -> str:
            if found.group(1) is None:
                return "$"
            name = _NAME.match(found.group(1))
            if name is None:
                report.error(path, f"${{{found.group(1)}}} does not name a variable", "write ${NAME}, or $${ for a plain ${")
                return found.group()
            value = environment.get(name.group(1)) or name.group(2)
            if value is None:
                report.error(path, f"the environment variable {name.group(1)} is not set", f"export {name.group(1)}=...")
                return found.group()
            return value

        expanded = _REFERENCE.sub(replace, text)
        if expanded != text:
            layout.unexpanded[path] = text
        return expanded

    def walk(value: Any, path: KeyPath) -> Any:
        if isinstance(value, str):
            return expand(value, path) if "${" in value and layout.origin(path).rank < RANK_ENVIRONMENT else value
        if isinstance(value, dict):
            return {key: walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, (*path, index)) for index, item in enumerate(value)]
        return value

    layout.tree = walk(layout.tree, ())


# -- YAML, loaded with the first text that needs it ------------------------------------------------------------------------


def _read_yaml(text: str, source: str) -> tuple[Tree, dict[KeyPath, int]]:
    from athena.shells.config.yaml_lines import read_yaml

    return read_yaml(text, source)


def _read_value(text: str) -> Any:
    from athena.shells.config.yaml_lines import read_value

    return read_value(text)

"""A format from a chat template, a checkpoint's own declaration, or a format file: found on disk, learnt, and read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from athena import __version__
from athena.errors import CannotLearn, UsageError
from athena.formats.declared.description import LARGEST_FILE, FormatDescription, read_description
from athena.learning.frame import opens_thinking
from athena.learning.infer import infer
from athena.learning.probes import Way
from athena.learning.response_templates import declared_response
from athena.learning.verify import Verified, verify
from athena.shells.templates.rendering import RenderingLimits, TemplateProcess

_TEMPLATE_BYTES = 1024 * 1024
_CONFIG_BYTES = 64 * 1024 * 1024
"""A tokenizer's configuration lists its added tokens: thousands, at times."""
_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
"""The special tokens that are assumed where none are named."""
_DECLARED = ("response_template", "response_schema")
_WORD = re.compile(r"[^a-z0-9]+")


class TemplateSource(NamedTuple):
    """What was found of a model."""

    name: str
    template: str
    tokens: dict[str, str]
    declared: Any
    """The form of answers as the checkpoint itself declares it; None when it does not."""
    declared_key: str


def learn_format(
    template: str | os.PathLike[str],
    *,
    name: str | None = None,
    limits: RenderingLimits = RenderingLimits(),  # noqa: B008 - frozen
) -> FormatDescription:
    """The text format that a chat template has its model write.

    Probe calls are rendered through the template, in a sandbox and in a process of its own. What the template writes around
    them is the format, and it counts only if it reads the template's own calls back, however they are cut into pieces. Where
    a checkpoint declares the form of its answers itself, that is taken as it is.

    Args:
        template: The file of a chat template (Jinja), a `tokenizer_config.json`, or the folder of a checkpoint.
        name: The id of the format; left out: made of the file's name.
        limits: What rendering may take.

    Returns:
        The format: for `parse` and `Parser`, and with `to_toml()` for a file that people read and edit.

    Raises:
        CannotLearn: The template writes no calls, or not in a form that can be read back; the message says why.
        UsageError: There is no such file, or jinja2 is not installed (`pip install 'athena-gateway[learn]'`).

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        ...     _ = file.write(
        ...         "{% for message in messages %}[{{ message.role }}] {{ message.content }}"
        ...         "{% for call in message.tool_calls or [] %}<call>{{ call.function | tojson }}</call>{% endfor %}"
        ...         "[end]{% endfor %}"
        ...     )
        ...     file.flush()
        ...     learnt = learn_format(file.name, name="acme")
        >>> learnt.call.begin, learnt.call.end
        ('<call>', '</call>')
    """
    source = find_source(Path(template))
    try:
        return _learnt(source, name or source.name, limits)
    except CannotLearn as error:
        raise CannotLearn(f"no format can be learnt from {template}: {error.message}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _learnt(source: TemplateSource, format_id: str, limits: RenderingLimits) -> FormatDescription:
    if source.declared is not None:
        found = declared_response(source.declared, format_id)
        about = f"Declared by the checkpoint under {source.declared_key}; read by athena {__version__}."
        return msgspec.structs.replace(found, about=about, starts_in_thinking=_opens_thinking(source, found, limits))
    with TemplateProcess(source.template, source.tokens, limits) as process:
        learnt = infer(process.render, format_id)
        verified = verify(process.render, learnt)
    return msgspec.structs.replace(learnt.description, about=_about(source, verified))


def _opens_thinking(source: TemplateSource, declared: FormatDescription, limits: RenderingLimits) -> bool:
    """Does the prompt of the checkpoint's template open the reasoning? Its declaration says nothing about prompts."""
    if not source.template:
        return False
    try:
        with TemplateProcess(source.template, source.tokens, limits) as process:
            return any(opens_thinking(process.render, Way(), pair) for pair in declared.thinking)
    except (CannotLearn, UsageError):
        # It cannot be rendered, or there is nothing to render it with: the declaration stands without it.
        return False


def load_format(file: str | os.PathLike[str]) -> FormatDescription:
    """The format that a format file declares, for `parse` and `Parser`.

    Args:
        file: A file as `athena formats learn` writes it.

    Raises:
        UsageError: There is no such file, or it declares no format; the message names what is wrong.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        ...     _ = file.write('id = "acme"\\n[call]\\nbody = "json"\\nbegin = "<call>"\\nend = "</call>"\\n')
        ...     file.flush()
        ...     load_format(file.name).id
        'acme'
    """
    path = Path(file)
    return read_description(_text(path, 4 * LARGEST_FILE), str(path))


def _about(source: TemplateSource, verified: Verified) -> str:
    about = (
        f"Learnt from the chat template {source.name} by athena {__version__}: "
        f"{verified.texts} of its texts were read back, cut in {verified.cuts} ways."
    )
    return about + (f" What its calls lose: {'; '.join(verified.lost)}." if verified.lost else "")


# -- files ---------------------------------------------------------------------------------------------------------------------


def find_source(path: Path) -> TemplateSource:
    """The template and what belongs to it. Raises UsageError."""
    if path.is_dir():
        return _checkpoint(path)
    if path.suffix == ".json":
        return _from_config(path, _config(path), None)
    return TemplateSource(_name(path), _text(path, _TEMPLATE_BYTES), dict(_TOKENS), None, "")


def _checkpoint(folder: Path) -> TemplateSource:
    config = folder / "tokenizer_config.json"
    template = folder / "chat_template.jinja"
    if not config.is_file():
        if not template.is_file():
            raise UsageError(f"{folder} holds neither chat_template.jinja nor tokenizer_config.json")
        return find_source(template)._replace(name=_name(folder))
    found = _from_config(config, _config(config), _text(template, _TEMPLATE_BYTES) if template.is_file() else None)
    return found._replace(name=_name(folder))


def _from_config(path: Path, config: dict[str, Any], template: str | None) -> TemplateSource:
    declared_key = next((key for key in _DECLARED if isinstance(config.get(key), dict)), "")
    tokens = dict(_TOKENS)
    for key, value in config.items():
        if key.endswith("_token"):
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                tokens[key] = text
    template = template if template is not None else _chat_template(config.get("chat_template"))
    if template is None and not declared_key:
        raise UsageError(f"{path} holds no chat_template: name the template's own file, often chat_template.jinja")
    return TemplateSource(_name(path), template or "", tokens, config[declared_key] if declared_key else None, declared_key)


def _chat_template(value: Any) -> str | None:
    """The template of a tokenizer's configuration; of several the one for tools, as transformers chooses."""
    if isinstance(value, str):
        return value
    named = {}
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
    found = named.get("tool_use", named.get("default"))
    return found if isinstance(found, str) else None


def _config(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path, _CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} is no tokenizer configuration")
    return value


def _text(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > most:
        raise UsageError(f"{path} is larger than {most} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None


def _name(path: Path) -> str:
    """An id made of a file's name."""
    stem = path.resolve().stem if path.suffix in (".jinja", ".json", ".jinja2", ".txt", ".j2") else path.resolve().name
    return _WORD.sub("_", stem.lower()).strip("_")[:64] or "learnt"


__all__ = ["CannotLearn", "find_source", "learn_format", "load_format"]

"""What a format file says: the markers of calls, what stands between them, and how reasoning and turns are fenced.

A description is data. `athena formats learn` writes one from a chat template, a person may write or edit one, and
`declared.build` makes the format of it. The file is TOML; `docs/learnt-formats.md` explains every key.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Literal

import msgspec

from athena.errors import UsageError
from athena.typed_values import reader

BodyKind = Literal["json", "headed", "tagged", "elements", "python", "literals"]
"""json: an object that holds name and arguments. headed: a name in a head, then the arguments as JSON. tagged: a name in a
head, then one tag per parameter. elements: a name in a head, then one element per parameter, `<KEY>value</KEY>`. python:
`name(key=value)`. literals: `call:name{key:value}` with quoting tokens."""

LARGEST_FILE = 64 * 1024
"""Characters of a format file."""
_LONGEST_MARKER = 200
_MOST_HOLES = 4
_HOLES = re.compile(r"\{(name|id|index)\}")
_ID = re.compile(r"[a-z0-9][a-z0-9_.\-]{0,63}")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands around all calls of an answer."""

    begin: str = ""
    end: str = ""


class Json(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The object of a `json` call."""

    name: str = "name"
    arguments: str = "arguments"
    id: str = ""
    wrapper: str = ""
    """The key under which name and arguments stand, where that is an object of its own."""
    name_is_key: bool = False
    """`{"NAME": {arguments}}`."""
    encoded: bool = False
    """The arguments are a JSON string that holds JSON. Both forms are read; this one is written."""


class TypeWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a parameter's tag names the type of its value; a word that is left out is that of `other`."""

    before: str
    """What stands between the key and the word."""
    string: str
    other: str
    number: str = ""
    boolean: str = ""
    object: str = ""
    array: str = ""
    null: str = ""


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One parameter of a `tagged` call."""

    begin: str
    key_end: str
    """What stands between the key and the value."""
    end: str
    between: str = ""
    values: Literal["text", "json"] = "text"
    """text: a string stands there as it is, and the tool's schema types everything else. json: every value is JSON."""
    cdata: bool = False
    """A value may stand in `<![CDATA[` and `]]>`."""
    types: TypeWords | None = None


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call."""

    body: BodyKind
    begin: str = ""
    head: str = "{name}"
    """What names the call, between `begin` and `arguments`, with {name}, {id} and {index} (a number that is counted up)."""
    arguments: str = ""
    """What stands between the head and the arguments."""
    end: str = ""
    between: str = ""
    """What stands between two calls; it is written, and ignored in reading where it is white space or a comma."""
    quote: str = ""
    """The quoting token of `literals`."""
    prefix: str = ""
    """A token that `elements` have before every tag."""
    list: bool = False
    """`json` and `python`: the calls of an answer stand in one pair of brackets."""


class FormatDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text format as data: what `learn_format` and `load_format` return, and what a format file holds.

    Examples:
        >>> known = FormatDescription(id="acme", call=Call(body="json", begin="<call>", end="</call>"))
        >>> print(known.to_toml())
        version = 1
        id = "acme"
        thinking = [["<think>", "</think>"]]
        <BLANKLINE>
        [call]
        body = "json"
        begin = "<call>"
        end = "</call>"
        <BLANKLINE>
        [json]
        name = "name"
        arguments = "arguments"
        <BLANKLINE>
    """

    version: Literal[1] = 1
    """Of the file's form."""
    id: str
    """The format's name."""
    about: str = ""
    """Where it comes from, for people."""
    models: tuple[str, ...] = ()
    """Patterns of model names, for people."""
    reserved: bool = False
    """The markers are control tokens of the model: a well-formed call counts even when its name was not declared."""
    in_reasoning: bool = False
    """Calls inside reasoning count, also where the markers are ordinary text."""
    ids: Literal["any", "nine"] = "any"
    """nine: the template takes only ids of nine letters and digits, so calls without an id get such ones."""
    thinking: tuple[tuple[str, str], ...] = (("<think>", "</think>"),)
    """Delimiters of reasoning inside visible text."""
    starts_in_thinking: bool = False
    """The prompt opens the reasoning, so that an answer begins inside it and has only the closing delimiter."""
    answer: tuple[tuple[str, str], ...] = ()
    """Delimiters around the visible answer; they are left out."""
    turn_ends: tuple[str, ...] = ()
    """What ends an answer and is no text."""
    section: Section = Section()
    """What stands around all calls of an answer."""
    call: Call
    """How one call is written."""
    json: Json = Json()
    """The keys of a call whose body is `json`."""
    parameter: Parameter | None = None
    """How one parameter is written, where the body is `tagged`."""

    def __post_init__(self) -> None:
        check(self)

    def to_toml(self) -> str:
        """The text of the format file."""
        return _written(self)


_read = reader(FormatDescription)


def read_description(text: str, where: str = "the format file") -> FormatDescription:
    """A format file's text as a description. Raises UsageError that names what is wrong with it."""
    if len(text) > LARGEST_FILE:
        raise UsageError(f"{where} is longer than {LARGEST_FILE} characters: this is no format file")
    try:
        return _read(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{where} is no format file: {error}") from None


# -- what a description must hold ----------------------------------------------------------------------------------------------


def check(description: FormatDescription) -> None:
    """Refuse what no reader could be built from. Raises ValueError, which msgspec reports with the place."""
    if not _ID.fullmatch(description.id):
        raise ValueError(f"id {description.id!r}: small letters, digits, _, - and . are allowed, and 64 of them")
    for marker in markers(description):
        if len(marker) > _LONGEST_MARKER:
            raise ValueError(f"the marker {marker[:40]!r}... is longer than {_LONGEST_MARKER} characters")
    for opener in (*pieces(description.section.begin), *pieces(description.call.begin)):
        if weak(opener):
            raise ValueError(f"the marker {opener!r} is too ordinary: it would be found in any text")
    for begin, end in (*description.thinking, *description.answer):
        if not begin.strip() or not end.strip():
            raise ValueError("thinking and answer need both their delimiters")
    _check_call(description.call)
    if description.call.body == "tagged":
        _check_parameter(description)


def _check_call(call: Call) -> None:
    if call.body not in ("json", "python") and not call.begin.strip():
        raise ValueError(f"call.begin is missing: a call of the body {call.body} needs a marker before it")
    if call.body in ("headed", "tagged", "elements") and "{name}" not in call.head:
        raise ValueError("call.head must say where the {name} stands")
    if len(holes(call.head)) > _MOST_HOLES + 1:
        raise ValueError(f"call.head has more than {_MOST_HOLES} places for a name, an id or a number")
    if call.body == "elements" and not (call.end.replace(call.prefix, "") if call.prefix else call.end).strip():
        raise ValueError("call.end is missing: elements need the tag that ends a call")
    if call.body == "literals" and not call.quote.strip():
        raise ValueError("call.quote is missing: literals need their quoting token")


def _check_parameter(description: FormatDescription) -> None:
    parameter = description.parameter
    if parameter is None:
        raise ValueError("[parameter] is missing: a tagged call has parameters in tags")
    if not (parameter.begin.strip() and parameter.key_end.strip() and parameter.end.strip()):
        raise ValueError("[parameter] needs begin, key_end and end, none of them blank")
    if not (description.call.end.strip() or description.section.end.strip()):
        raise ValueError("call.end is missing: without it the last parameter has no end")


def weak(marker: str) -> bool:
    """Would this marker be found in ordinary text? A word is, and so is anything of two characters."""
    return len(marker) < 3 or marker[0].isalnum() or marker[0] in "\"'.,;:({" or marker.isspace()


def markers(description: FormatDescription) -> tuple[str, ...]:
    """Every marker of a description, as it is written."""
    call, parameter = description.call, description.parameter
    found = [description.section.begin, description.section.end, call.begin, call.arguments, call.end, call.quote, call.prefix]
    if parameter is not None:
        found += [parameter.begin, parameter.key_end, parameter.end]
    found += [one for pair in (*description.thinking, *description.answer) for one in pair]
    return tuple(one for one in (*found, *description.turn_ends) if one)


_SEAM = re.compile(r"(?<=[>\]])\s+(?=[<\[])|(?<=[\w\"]>)(?=</?\w)")


def pieces(marker: str) -> tuple[str, ...]:
    """A marker cut between its tags, without the white space around them: models write that in different ways."""
    return tuple(piece for piece in (one.strip() for one in _SEAM.split(marker.strip())) if piece)


def holes(head: str) -> list[tuple[str, str]]:
    """A head as pairs: the text before a hole, and the hole's name; the last pair has no hole."""
    found: list[tuple[str, str]] = []
    at = 0
    for hole in _HOLES.finditer(head):
        found.append((head[at : hole.start()], hole.group(1)))
        at = hole.end()
    return [*found, (head[at:], "")]


# -- writing -------------------------------------------------------------------------------------------------------------------


def _written(description: FormatDescription) -> str:
    values = msgspec.to_builtins(description)
    default = msgspec.to_builtins(
        FormatDescription(id="x", call=Call(body="json", begin="<call>", list=True), thinking=(("<think>", "</think>"),))
    )
    lines = [f"version = {description.version}", f"id = {_value(description.id)}"]
    tables: list[str] = []
    for key, value in values.items():
        if key in ("version", "id") or value is None:
            continue
        if isinstance(value, dict):
            if key == "call" or (key == "parameter") or (key == "json" and description.call.body == "json") or (
                key == "section" and any(value.values())
            ):  # fmt: skip
                tables += _table(key, value)
        elif value != default.get(key) or key == "thinking":
            lines.append(f"{key} = {_value(value)}")
    return "\n".join((*lines, *tables)) + "\n"


def _table(name: str, values: dict[str, Any]) -> list[str]:
    lines = ["", f"[{name}]"]
    nested: list[str] = []
    for key, value in values.items():
        if isinstance(value, dict):
            nested += _table(f"{name}.{key}", value)
        elif value not in ("", False, None) and (key, value) != ("head", "{name}"):
            lines.append(f"{key} = {_value(value)}")
    return [*lines, *nested]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for a character that TOML wants escaped and JSON does not.
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value)

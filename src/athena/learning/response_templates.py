"""What a checkpoint declares about the form of its answers, as a description: nothing is guessed, nothing is rendered.

Two forms are read. `response_template` (transformers 5) names regions of an answer by what opens and closes them; the older
`response_schema` is a JSON Schema with regular expressions in it. Both may hold any regular expression; those that are markers
with groups between them can be read here, and anything else is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from athena.errors import CannotLearn
from athena.formats.declared.build import is_control
from athena.formats.declared.description import Call, FormatDescription, Json, Parameter, Section, pieces
from athena.formats.machine.base import THINK
from athena.learning.verify import PLAIN, own_round_trip

_PLACEHOLDER = re.compile(r"\{([\w.]+)\}")
_REASONING = ("thinking", "reasoning_content", "reasoning")
_GEMMA_QUOTE = '<|"|>'


def declared_response(value: Any, format_id: str) -> FormatDescription:
    """The description of a declared response. Raises CannotLearn that names what cannot be read."""
    if not isinstance(value, Mapping):
        raise CannotLearn("the checkpoint's declaration of its answers is no object")
    fields = value.get("fields")
    try:
        description = _from_template(fields, format_id) if isinstance(fields, Mapping) else _from_schema(value, format_id)
    except ValueError as error:
        raise CannotLearn(f"the checkpoint's declaration of its answers cannot be read: {error}") from None
    for arguments in PLAIN:
        if not own_round_trip(description, arguments):
            raise CannotLearn(f"a call with {arguments} cannot be written in the declared form and read back")
    return description


# -- regions -------------------------------------------------------------------------------------------------------------------


def _from_template(fields: Mapping[str, Any], format_id: str) -> FormatDescription:
    calls = fields.get("tool_calls")
    if not isinstance(calls, Mapping):
        raise CannotLearn("the checkpoint's response_template has no field tool_calls")
    begin = _edge(calls, "open", "tool_calls")
    end = "".join(part.text for part in _edge(calls, "close", "tool_calls", needed=False))
    thinking = tuple(
        (_marker(fields[key], "open", key), _marker(fields[key], "close", key))
        for key in _REASONING
        if isinstance(fields.get(key), Mapping) and any(one in fields[key] for one in ("open", "open_pattern"))
    )
    content = fields.get("content")
    answer: tuple[tuple[str, str], ...] = ()
    if isinstance(content, Mapping) and any(one in content for one in ("open", "open_pattern")):
        answer = ((_marker(content, "open", "content"), _marker(content, "close", "content")),)
    shape = _template_shape(calls, begin, end)
    return _described(format_id, shape, thinking or THINK, answer)


class _Shape(NamedTuple):
    call: Call
    json: Json = Json()
    parameter: Parameter | None = None


def _template_shape(calls: Mapping[str, Any], begin: Sequence[_Part], end: str) -> _Shape:
    kind = calls.get("content", "text")
    options = calls.get("content_args") or {}
    named = [part for part in begin if part.group]
    if kind == "json":
        quotes = options.get("string_delims") or ()
        if quotes:
            return _literals(begin, end, str(quotes[0][0]))
        if named:
            call_begin, head, arguments = _head(begin)
            return _Shape(Call(body="headed", begin=call_begin, head=head, arguments=arguments, end=end))
        keys, listed = _transform_keys(calls.get("transform"), each=bool(calls.get("transform_each")))
        return _Shape(Call(body="json", begin="".join(part.text for part in begin), end=end, list=listed), keys)
    if kind == "xml-inline":
        if not named:
            raise CannotLearn("the open_pattern of tool_calls names no group for the tool's name")
        call_begin, head, arguments = _head(begin)
        parser = options.get("value_parser") or {}
        strict = parser.get("name") == "json" and not (parser.get("args") or {}).get("allow_non_json")
        parameter = _parameter(str(options.get("tag_pattern", "")), "json" if strict else "text")
        return _Shape(Call(body="tagged", begin=call_begin, head=head, arguments=arguments, end=end), Json(), parameter)
    raise CannotLearn(f"the content of tool_calls is declared as {kind!r}, which is not read")


def _literals(begin: Sequence[_Part], end: str, quote: str) -> _Shape:
    call_begin, head, arguments = _head(begin)
    if not head.startswith("call:{name}") and not call_begin.rstrip().endswith("call:"):
        raise CannotLearn("strings have quoting tokens, and calls do not begin with call:NAME")
    if arguments.strip():
        raise CannotLearn(f"{arguments!r} stands between a call's name and its arguments")
    return _Shape(Call(body="literals", begin=call_begin.rstrip().removesuffix("call:"), end=end, quote=quote))


def _transform_keys(transform: Any, *, each: bool) -> tuple[Json, bool]:
    """Where name and arguments stand in the decoded content."""
    if transform is None:
        return Json(wrapper="function"), each
    function = transform.get("function") if isinstance(transform, Mapping) else None
    if function in ("{content}", "{function}"):
        return Json(), each
    if not isinstance(function, Mapping):
        raise CannotLearn("the transform of tool_calls has no function")
    found = {key: _PLACEHOLDER.fullmatch(str(function.get(key, ""))) for key in ("name", "arguments")}
    paths = {key: one.group(1).removeprefix("content.").split(".") for key, one in found.items() if one is not None}
    if set(paths) != {"name", "arguments"} or any(len(path) > 2 for path in paths.values()):
        raise CannotLearn("the transform of tool_calls does not say where name and arguments stand")
    wrapper = paths["name"][0] if len(paths["name"]) == 2 else ""
    call_id = _PLACEHOLDER.fullmatch(str(transform.get("id", "")))
    return (
        Json(
            name=paths["name"][-1],
            arguments=paths["arguments"][-1],
            wrapper=wrapper,
            id=call_id.group(1).removeprefix("content.") if call_id else "",
        ),
        each,
    )


def _edge(field: Mapping[str, Any], key: str, name: str, *, needed: bool = True) -> list[_Part]:
    literal, pattern = field.get(key), field.get(f"{key}_pattern")
    if isinstance(literal, list) and literal:
        literal = literal[0]
    if isinstance(literal, str):
        return [_Part(literal, "")]
    if isinstance(pattern, str):
        return parts(pattern)
    if needed:
        raise CannotLearn(f"the field {name} of the checkpoint's response_template has no {key}")
    return []


def _marker(field: Mapping[str, Any], key: str, name: str) -> str:
    found = _edge(field, key, name)
    if any(part.group for part in found):
        raise CannotLearn(f"the {key} of {name} has groups in it")
    return "".join(part.text for part in found).strip()


# -- the older form ------------------------------------------------------------------------------------------------------------


def _from_schema(schema: Mapping[str, Any], format_id: str) -> FormatDescription:
    properties = _part(schema, "properties")
    calls = _part(properties, "tool_calls")
    iterator = calls.get("x-regex-iterator")
    if not isinstance(iterator, str):
        raise CannotLearn("the checkpoint's response_schema does not say by an x-regex-iterator where calls stand")
    around = parts(iterator)
    if [bool(part.group) for part in around] not in ([False, True, False], [False, True]):
        raise CannotLearn(f"the pattern of calls {iterator!r} is more than two markers with a group between them")
    begin, end = around[0].text, around[2].text if len(around) > 2 else ""
    items = _part(calls, "items")
    thinking = THINK
    for key in _REASONING:
        pattern = _part(properties, key).get("x-regex")
        if isinstance(pattern, str):
            found = [part.text.strip() for part in parts(pattern) if not part.group]
            thinking = ((found[0], found[-1]),) if len(found) == 2 and all(found) else THINK
    return _described(format_id, _schema_shape(items, begin, end), thinking, ())


def _schema_shape(items: Mapping[str, Any], begin: str, end: str) -> _Shape:
    if items.get("x-parser") == "json":
        return _Shape(Call(body="json", begin=begin, end=end), _jmespath_keys(_part(items, "x-parser-args").get("transform")))
    function = _part(_part(items, "properties"), "function")
    inner = _part(function, "properties")
    name, arguments = _part(inner, "name"), _part(inner, "arguments")
    pairs = arguments.get("x-regex-key-value")
    if isinstance(pairs, str):
        before = [part.text for part in parts(str(name.get("x-regex", ""))) if not part.group]
        opening = begin + (before[0] if before else "")
        closing = before[1] if len(before) > 1 else ""
        return _Shape(Call(body="tagged", begin=opening, arguments=closing, end=end), Json(), _parameter(pairs, "text"))
    if str(arguments.get("x-parser", "")).startswith("gemma4"):
        return _Shape(Call(body="literals", begin=begin, end=end, quote=_GEMMA_QUOTE))
    pattern = function.get("x-regex")
    if isinstance(pattern, str) and arguments.get("x-parser") == "json":
        inside = [part for part in parts(pattern) if part.group != "arguments"]
        head_begin, head, behind = _head([_Part(begin, ""), *inside])
        return _Shape(Call(body="headed", begin=head_begin, head=head, arguments=behind, end=end))
    raise CannotLearn("the checkpoint's response_schema does not say how a call's name and arguments are written")


def _jmespath_keys(transform: Any) -> Json:
    """Only the two transforms that occur: the object as it is, or its fields under other names."""
    text = str(transform or "")
    if not text or "@" in text:
        return Json()
    found = re.search(r"name:\s*([\w.]+)\s*,\s*arguments:\s*([\w.]+)", text)
    if found is None:
        raise CannotLearn(f"the transform {text[:80]!r} is not read")
    return Json(name=found.group(1).split(".")[-1], arguments=found.group(2).split(".")[-1])


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


# -- what both share -----------------------------------------------------------------------------------------------------------


def _described(
    format_id: str, shape: _Shape, thinking: tuple[tuple[str, str], ...], answer: tuple[tuple[str, str], ...]
) -> FormatDescription:
    first = (*pieces(shape.call.begin), "")[0]
    return FormatDescription(
        id=format_id,
        reserved=is_control(first),
        thinking=thinking,
        answer=answer,
        section=Section(),
        call=shape.call,
        json=shape.json,
        parameter=shape.parameter,
    )


def _head(begin: Sequence[_Part]) -> tuple[str, str, str]:
    """(marker, head, what stands after it) of an opening with groups."""
    groups = [number for number, part in enumerate(begin) if part.group]
    head = "".join("{" + _hole(part.group) + "}" if part.group else part.text for part in begin[groups[0] : groups[-1] + 1])
    before = "".join(part.text for part in begin[: groups[0]])
    return before, head, "".join(part.text for part in begin[groups[-1] + 1 :])


def _hole(group: str) -> str:
    if group in ("name", "tool_name", "function_name"):
        return "name"
    if group in ("id", "call_id", "tool_call_id"):
        return "id"
    if group in ("index", "number"):
        return "index"
    raise CannotLearn(f"the group {group!r} is neither a name nor an id nor a number")


def _parameter(pattern: str, values: Literal["text", "json"]) -> Parameter:
    found = parts(pattern)
    if [part.group for part in found] != ["", "key", "", "value", ""]:
        raise CannotLearn(f"the pattern of parameters {pattern!r} is not: marker, key, marker, value, marker")
    return Parameter(begin=found[0].text, key_end=found[2].text, end=found[4].text, values=values)


class _Part(NamedTuple):
    """A piece of a pattern: text, or a group."""

    text: str
    group: str


_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_SPACES = re.compile(r"(?:\\s|\\n)[*+]?\??")
_GROUP = re.compile(r"\((?:\?P<(\w+)>|\?:)?")


def parts(pattern: str) -> list[_Part]:
    """A regular expression of markers and groups as its parts. Raises CannotLearn where it is more than that."""
    found: list[_Part] = []
    text: list[str] = []
    at = 0
    pattern = pattern.removeprefix("^").removesuffix("$")
    while at < len(pattern):
        spaces = _SPACES.match(pattern, at)
        group = _GROUP.match(pattern, at)
        if spaces is not None:
            # Readers skip white space beside markers.
            text.append("\n")
            at = spaces.end()
        elif pattern[at] == "\\" and at + 1 < len(pattern) and not pattern[at + 1].isalnum():
            text.append(pattern[at + 1])
            at += 2
        elif pattern[at] == "\\" and pattern[at + 1 : at + 2] in _ESCAPED:
            text.append(_ESCAPED[pattern[at + 1]])
            at += 2
        elif group is not None and not pattern.startswith("(?:", at):
            end = _group_end(pattern, at)
            found.append(_Part("".join(text), ""))
            found.append(_Part("", group.group(1) or "content"))
            text = []
            at = end
        elif pattern[at] in ".^$*+?{}[]()|\\":
            raise CannotLearn(f"the pattern {pattern!r} is more than markers with groups between them")
        else:
            text.append(pattern[at])
            at += 1
    found.append(_Part("".join(text), ""))
    return [part for number, part in enumerate(found) if part.group or part.text or number == 0]


def _group_end(pattern: str, at: int) -> int:
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            # A bracket that comes first in a class is one of its characters.
            at = pattern.find("]", at + (3 if pattern.startswith("[^", at) else 2))
            if at < 0:
                break
        elif pattern[at] == "(":
            depth += 1
        elif pattern[at] == ")":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    raise CannotLearn(f"the pattern {pattern!r} has a group that does not end")

"""How a declared format has calls, results and tools written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from athena.formats.bodies.gemma_text import call_text, literal_trouble
from athena.formats.bodies.json_text import quoted
from athena.formats.declared.description import Call, FormatDescription, Parameter, TypeWords, markers
from athena.formats.machine.render import arguments_of, plain_value, python_value, result_text, tagged_trouble, tool_lines
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

_ELEMENT = re.compile(r"[A-Za-z_][\w.\-]{0,63}")
_EXAMPLE = ToolCall(id="abcdefgh1", name="NAME", arguments='{"KEY": "VALUE"}')


class DescribedWriter:
    """The opposite direction of the readers in `declared.build`."""

    def __init__(self, description: FormatDescription) -> None:
        self._description = description

    def calls(self, calls: Sequence[ToolCall]) -> str:
        """The calls of one turn."""
        call, section = self._description.call, self._description.section
        between = call.between or (", " if call.list else "")
        written = between.join(call.begin + self._one(one, number) + call.end for number, one in enumerate(calls))
        if call.list:
            written = f"[{written}]"
        return section.begin + written + section.end

    def results(self, results: Sequence[ToolResult]) -> str:
        """Results as the widest used templates write them; what a model's own template writes is not part of a description."""
        return "\n".join(f"<tool_response>\n{result_text(result)}\n</tool_response>" for result in results)

    def tools(self, tools: Sequence[Tool]) -> str:
        """The system text that declares tools and shows the form of a call."""
        return (
            f"# Tools\n\nThese functions can be called. Their signatures, one per line:\n<tools>\n{tool_lines(tools)}\n</tools>"
            f"\n\nA call is written exactly so:\n{self.calls([_EXAMPLE])}"
        )

    def trouble(self, call: ToolCall) -> str | None:
        """Why the format cannot hold this call exactly."""
        form = self._description.call
        if form.body == "literals":
            return literal_trouble(call, form.quote.strip())
        if form.body == "python":
            if not all(part.isidentifier() for part in call.name.replace("-", "_").split(".")):
                return "the name is no Python name"
            if not all(key.isidentifier() for key in arguments_of(call)):
                return "a parameter's name is no Python word"
            return None
        own = tuple(one.strip() for one in markers(self._description))
        if form.body in ("headed", "tagged", "elements") and (
            call.name != call.name.strip() or any(one in call.name for one in (*own, "\n", " ", "{", "<", '"') if one)
        ):
            return "the name does not fit into the head of a call"
        if form.body == "tagged":
            return tagged_trouble(call, tuple(one for one in own if len(one) > 2))
        return _element_trouble(call, own) if form.body == "elements" else None

    def _one(self, call: ToolCall, number: int) -> str:
        form: Call = self._description.call
        match form.body:
            case "json":
                return self._json(call)
            case "headed":
                return self._head(call, number) + form.arguments + (call.arguments.strip() or "{}")
            case "tagged":
                parameter = self._description.parameter
                assert parameter is not None  # check() saw to it
                parameters = [_parameter(parameter, key, value) for key, value in arguments_of(call).items()]
                return self._head(call, number) + form.arguments + parameter.between.join(parameters)
            case "elements":
                tag = form.prefix + "<"
                elements = (f"{tag}{key}>{plain_value(value)}{tag}/{key}>" for key, value in arguments_of(call).items())
                return self._head(call, number) + form.arguments + "".join(elements)
            case "python":
                values = (f"{key}={python_value(value)}" for key, value in arguments_of(call).items())
                return f"{call.name}({', '.join(values)})"
            case "literals":
                return call_text(call, form.quote)

    def _head(self, call: ToolCall, number: int) -> str:
        head = self._description.call.head
        return head.replace("{index}", str(number)).replace("{id}", call.id).replace("{name}", call.name)

    def _json(self, call: ToolCall) -> str:
        keys = self._description.json
        arguments = call.arguments.strip() or "{}"
        if keys.encoded:
            arguments = quoted(arguments)
        if keys.name_is_key:
            return f"{{{quoted(call.name)}: {arguments}}}"
        fields = f"{quoted(keys.name)}: {quoted(call.name)}, {quoted(keys.arguments)}: {arguments}"
        call_id = f"{quoted(keys.id)}: {quoted(call.id)}" if keys.id and call.id else ""
        if keys.wrapper:
            return "{" + f"{call_id}, " * bool(call_id) + f"{quoted(keys.wrapper)}: {{{fields}}}}}"
        return "{" + fields + f", {call_id}" * bool(call_id) + "}"


def _parameter(form: Parameter, key: str, value: str) -> str:
    words = _type_word(form.types, value) if form.types is not None else ""
    text = value if form.values == "json" else plain_value(value)
    if form.cdata and any(one in text for one in ("<", "&", "\n")):
        text = f"<![CDATA[{text}]]>"
    return f"{form.begin}{key}{words}{form.key_end}{text}{form.end}"


def _element_trouble(call: ToolCall, own: tuple[str, ...]) -> str | None:
    """An element's name is its key, and its text has no escapes."""
    for key, value in arguments_of(call).items():
        if not _ELEMENT.fullmatch(key) or key == "parameter":
            return f"the parameter name {key!r} is no name of an element"
        text = plain_value(value)
        if f"<{key}>" in text or f"</{key}>" in text or any(len(one) > 2 and one in text for one in own):
            return f"the value of {key} holds markup of the format itself"
        if value.startswith('"') and text.strip()[:1] in ("{", "[", "<"):
            return f"the value of {key} would be read as something else"
    return None


def _type_word(words: TypeWords, value: str) -> str:
    kinds = {'"': words.string, "{": words.object, "[": words.array, "t": words.boolean, "f": words.boolean, "n": words.null}
    return words.before + (kinds.get(value[:1], words.number) or words.other)

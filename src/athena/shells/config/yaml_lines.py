"""YAML text as plain values, with the line of each: PyYAML's safe composer and our own construction from its nodes.

Only plain data: no tags, no dates, no sexagesimal numbers, and of the words only true and false are booleans (`repair: off`
stays text). Keys are text and stand once. Aliases and `<<` work; a file that grows too large by them is refused.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from athena.errors import ConfigProblem
from athena.shells.config.bad_file import BadYaml
from athena.shells.config.places import KeyPath, Tree

_MAX_VALUES = 50_000
_MAX_DEPTH = 64

_RESOLVERS = {
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+", "-+0123456789"),
    "tag:yaml.org,2002:float": (r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    "tag:yaml.org,2002:null": (r"~|null|Null|NULL|", "~nN\0"),
    "tag:yaml.org,2002:merge": (r"<<", "<"),
}


class _Loader(yaml.SafeLoader):
    """The safe loader with the few plain words of YAML 1.2."""


_Loader.yaml_implicit_resolvers = {}
for _tag, (_pattern, _first) in _RESOLVERS.items():
    _firsts: list[str | None] = ["" if character == "\0" else character for character in _first]
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), _firsts)


def read_yaml(text: str, source: str) -> tuple[Tree, dict[KeyPath, int]]:
    """The mapping in the text, and the line of every value. Raises BadYaml, which names the line."""
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        builder = _Builder(source)
        value = {} if root is None else builder.value(root, (), 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = error.problem or error.context or "not valid YAML"
        remedy = "indent with spaces, not with tabs" if "'\\t'" in message else ""
        line = mark.line + 1 if mark else None
        raise BadYaml(ConfigProblem(f"not valid YAML: {message}", "", source, line, remedy)) from None
    except yaml.YAMLError as error:
        raise BadYaml(ConfigProblem(f"not valid YAML: {str(error).splitlines()[0]}", "", source)) from None
    except RecursionError:
        raise BadYaml(ConfigProblem("nested too deeply", "", source)) from None
    finally:
        if loader is not None:
            loader.dispose()
    if value is None:
        return {}, {}
    if not isinstance(value, dict):
        raise BadYaml(ConfigProblem("must hold settings as key: value", "", source, 1))
    return value, builder.lines


def read_value(text: str) -> Any:
    """One value written as YAML, such as a list in an environment variable. Raises BadYaml."""
    tree, _ = read_yaml("value: " + text, "")
    return tree.get("value")


class _Builder:
    def __init__(self, source: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._source = source
        self._count = 0

    def value(self, node: yaml.Node, path: KeyPath, depth: int) -> Any:
        self._count += 1
        if self._count > _MAX_VALUES or depth > _MAX_DEPTH:
            raise self._bad(node, "too large or nested too deeply once its aliases are filled in")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.value(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._mapping(node, path, depth)
        raise self._bad(node, f"the tag {node.tag} is not allowed")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> Tree:
        found: Tree = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._bad(key_node, "a key must be text")
            key = str(key_node.value)
            if key in found:
                raise self._bad(key_node, f"duplicate key {key}")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*path, key), depth + 1)
        for other in merged:
            if not isinstance(other, yaml.MappingNode):
                raise self._bad(other, "<< takes a mapping")
            before = dict(self.lines)
            for key, value in self._mapping(other, path, depth + 1).items():
                found.setdefault(key, value)
            self.lines |= before
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        match node.tag.rpartition(":")[2]:
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return int(text, 16) if text.startswith("0x") else int(text.replace("_", ""))
            case "float":
                return float(text.replace("_", ""))
        raise self._bad(node, f"the tag {node.tag} is not allowed")

    def _bad(self, node: yaml.Node, message: str) -> BadYaml:
        return BadYaml(ConfigProblem(message, "", self._source, node.start_mark.line + 1))

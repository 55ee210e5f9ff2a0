"""How much work it is to hold a value against a schema, known before the work is done.

Schemas come from strangers, and the engine that checks them cannot be interrupted: thirty `anyOf` pairs of references are a
schema of three kilobytes and a billion steps. So a schema is analysed once, in time linear in its size, and every value is
measured before it is checked. Both count the same unit, a step: one keyword looked at for one value, some ten nanoseconds.

The bound is taken along the two ways in which work multiplies:

- **In place**: `$ref`, `allOf`, `anyOf`, `oneOf`, `not`, `if`, `then`, `else` and dependent schemas look at the same value
  again. The cost of a node is its own keywords and the cost of all nodes it names, each counted as often as it is named.
- **Below**: `properties`, `items` and their like look at the value's children. The steps that one value at depth `d` can cost
  follow from those of depth `d - 1`, so they are computed level by level, as deep as the value is. Where nothing multiplies,
  each child is measured against its own schema: a pattern for a short path says nothing about the long text beside it.

What this cannot bound is refused with a reason: references that lead in a circle without going down, that leave the
document or depend on the path taken, and regular expressions that need backtracking.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from athena.wire.json_pointer import local_target

__all__ = ["MANY", "MOST_BYTES", "SchemaCost", "SchemaRefusal", "pattern_states"]

SchemaRefusal = Literal["", "schema_size", "reference", "pattern"]
"""Why a schema is never given to the engine: it is too large or too deep, its references cannot be followed beforehand, or a
pattern in it needs backtracking or too many states."""

MANY = 1 << 40
"""Stands for more steps than any caller would wait for; all sums end here."""
MOST_BYTES = 64 * 1024
"""A schema's JSON text."""
_MOST_NODES = 2000
_MOST_DEPTH = 64
_MOST_ENTRIES = 10_000
"""Keys and listed values of a schema that the analysis looks at."""
_MOST_EDGES = 100_000
"""Edges followed for all levels of one value together."""
_MOST_FRAMES = 2000
"""Calls of the engine inside one another: schemas in place times the value's depth. Its stack is the thread's."""
_MOST_WRITTEN_OUT = 20_000
"""Nodes the engine builds where it writes references out, which it does for unevaluated properties and items."""
_MOST_PATTERNS = 100
_MOST_STATES = 8_000
"""States of all patterns together."""
_MOST_VALUES = 20_000
"""Values inside the value that is checked."""
_PER_STATE = 32
"""What one state of a pattern costs for each character, in sixteenths of a step."""
_BYTES_PER_STATE = 64
_BYTES_PER_NESTING = 32
_BYTES_WRITTEN_OUT = 320
"""Memory of the engine, measured: for a state of a pattern; for the square of a schema's depth, because some keywords keep a
copy of what is below them; for a node that is written out."""
_AROUND_A_CHARACTER = 4
"""Steps for the value that a character may be, and what rounding leaves out."""
_MEASURED_LEVELS = 8
"""Levels of a value whose children are measured one by one; those below are measured as a whole."""
_UNEVALUATED = 3
"""How often the engine looks at a schema in place where it has to know what is unevaluated."""

_IN_PLACE_LISTS = frozenset({"allOf", "anyOf", "oneOf"})
_IN_PLACE = frozenset({"not", "if", "then", "else"})
_IN_PLACE_MAPS = frozenset({"dependentSchemas", "dependencies"})
_BELOW = frozenset({
    "additionalProperties", "propertyNames", "items", "contains", "additionalItems", "unevaluatedProperties",
    "unevaluatedItems",
})  # fmt: skip
_UNEVALUATED_WORDS = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_LISTED = frozenset({"required", "enum", "dependentRequired"})
_PER_CHARACTER = {"minLength": 1, "maxLength": 1, "format": 16, "contentMediaType": 16, "contentEncoding": 16}
"""In sixteenths of a step."""
_REGEX_FORMAT = 2000 * _PER_STATE
_DYNAMIC = frozenset({"$dynamicRef", "$recursiveRef"})
_STATES_OF = {".": 10}
_CLASS_OF_UNICODE = 300
_BACKTRACKS = re.compile(r"\(\?<?[=!]|\\[1-9]|\\k<")
_REPEAT = re.compile(r"\{(\d{1,9})(,?)(\d{0,9})\}")


class _Refused(Exception):
    def __init__(self, reason: SchemaRefusal) -> None:
        super().__init__(reason)
        self.reason: SchemaRefusal = reason


class _Node:
    """One schema inside the schema."""

    __slots__ = (
        "all_below", "deep", "in_place", "named", "one_below", "own", "per_character", "per_key_character", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.own = 1
        """Steps for one value, its children left out."""
        self.per_character = 0
        """For each character of a string, in sixteenths of a step."""
        self.per_key_character = 0
        """The same for the characters of each key."""
        self.deep = 0
        """Steps for every value anywhere below: comparing items with each other."""
        self.named: dict[str, int] = {}
        """Those of `one_below` that look at the child of one name."""
        self.size = 1
        """Nodes written inside this one, itself included."""
        self.in_place: list[int] = []
        self.one_below: list[int] = []
        """At most one of these looks at a child."""
        self.all_below: list[int] = []
        """All of these may look at a child."""


class SchemaCost:
    """How many steps checking a value against one schema can take at most."""

    __slots__ = (
        "_edges", "_frames", "_levels", "_nodes", "_order", "_unevaluated", "_worst", "engine_bytes", "refusal",
    )  # fmt: skip

    def __init__(self, schema: dict[str, Any]) -> None:
        self.refusal: SchemaRefusal = ""
        self.engine_bytes = 0
        """About what the engine's form of the schema takes in memory, besides what it takes for each character of its text."""
        self._unevaluated = False
        self._frames = 0
        self._levels: list[tuple[list[int], list[int]]] = []
        self._worst: int | None = None
        """Steps for a character of the text of any value; 0: nothing so simple can be said. None: not found out yet."""
        try:
            found = _Collector(schema)
            self._nodes = found.nodes
            self._unevaluated = found.unevaluated
            self._order, self._frames = _in_place_order(found.nodes)
            written_out = self._written_out() if self._unevaluated else 0
            if written_out > _MOST_WRITTEN_OUT:
                raise _Refused("schema_size")
            self.engine_bytes = (
                found.states * _BYTES_PER_STATE + found.nesting * _BYTES_PER_NESTING + written_out * _BYTES_WRITTEN_OUT
            )
        except _Refused as refused:
            self.refusal = refused.reason
            self._nodes, self._order = [], []
        self._edges = sum(len(node.in_place) + len(node.one_below) + len(node.all_below) + 1 for node in self._nodes)

    def steps(self, value: Any) -> int:
        """The most steps that a check of this value can take; `MANY` when that is too much to be worth counting."""
        if self.refusal:
            return MANY
        sizes = _sizes_by_depth(value)
        if sizes is None or self._frames * len(sizes) > _MOST_FRAMES:
            return MANY
        return min(self._of(0, value, 0, [_MOST_VALUES]), MANY)

    def steps_of_text(self, characters: int) -> int:
        """The most steps for any value whose JSON has so many characters, found without a look at it; 0: cannot be said."""
        if self._worst is None:
            self._worst = self._worst_character()
        return self._worst * characters if self._frames * characters <= _MOST_FRAMES else 0

    def _worst_character(self) -> int:
        """A value has at least one character of its own, and each character is of one value or key only."""
        if self.refusal or self._unevaluated or any(node.deep for node in self._nodes):
            return 0
        worst = 0
        for depth in range(_MEASURED_LEVELS):
            level = self._level(depth, 0)
            if level is None:
                return 0
            if depth >= len(self._levels):
                return worst  # no schema reaches this deep
            worst = max(worst, level[0] + level[1] // 16 + _AROUND_A_CHARACTER)
        return 0

    def _of(self, index: int, value: Any, depth: int, left: list[int]) -> int:
        """The steps of one schema with one value, each child measured by itself where that can be done. `left` is how many
        may still be."""
        node = self._nodes[index]
        children = _children(value)
        left[0] -= 1 + len(children)
        alone = node.in_place or node.deep or self._unevaluated or (isinstance(value, list) and node.one_below)
        if alone or not children or depth >= _MEASURED_LEVELS or left[0] < 0:
            sizes = _sizes_by_depth(value)
            return self._bound(index, sizes) if sizes is not None else MANY
        total = node.own + len(children)
        for key, child in children:
            total += len(key) * node.per_key_character // 16
            number = node.named.get(key)
            if number is not None:
                total += self._of(number, child, depth + 1, left)
            for other in node.all_below:
                total += self._of(other, child, depth + 1, left)
            if total > MANY:
                break
        return total

    def _bound(self, index: int, sizes: list[tuple[int, int]]) -> int:
        """The steps of one schema with all values of these depths, taken for the worst that each may be."""
        total = 0
        for depth, (values, characters) in enumerate(sizes):
            level = self._level(depth, index)
            if level is None:
                return MANY
            total += values * (level[0] + 1) + characters * level[1] // 16 + characters // 64
        return total

    # -- levels ----------------------------------------------------------------------------------------------------------

    def _level(self, depth: int, index: int) -> tuple[int, int] | None:
        """Steps for one value at this depth, and sixteenths of a step for one character there; None: too deep to be counted."""
        levels = self._levels
        while len(levels) <= depth:
            if levels and not any(levels[-1][0]) and not any(levels[-1][1]):
                # No schema reaches this deep.
                return 0, 0
            if (len(levels) + 1) * self._edges > _MOST_EDGES:
                return None
            # A new list each time: two threads may be at work, and neither must see what the other has half done.
            levels = self._levels = [*levels, self._next_level(levels)]
        steps, texts = levels[depth]
        return steps[index], texts[index]

    def _next_level(self, levels: list[tuple[list[int], list[int]]]) -> tuple[list[int], list[int]]:
        nodes, first, second = self._nodes, not levels, len(levels) == 1
        steps, texts = [0] * len(nodes), [0] * len(nodes)
        above_steps, above_texts = levels[-1] if levels else ([], [])
        times = _UNEVALUATED if self._unevaluated else 1
        for index in self._order:
            node = nodes[index]
            if first:
                cost, text = node.own, node.per_character
            else:
                cost = node.deep + max((above_steps[one] for one in node.one_below), default=0)
                cost += sum(above_steps[one] for one in node.all_below)
                text = node.deep + max((above_texts[one] for one in node.one_below), default=0)
                text += sum(above_texts[one] for one in node.all_below)
                if second:
                    text += node.per_key_character
                    cost += len(node.named) if self._unevaluated else 0
            cost += times * sum(steps[one] for one in node.in_place)
            text += times * sum(texts[one] for one in node.in_place)
            steps[index], texts[index] = min(cost, MANY), min(text, MANY)
        return steps, texts

    def _written_out(self) -> int:
        """Nodes of the largest in-place tree, each counted as often as a reference leads to it."""
        sizes = [0] * len(self._nodes)
        for index in self._order:
            node = self._nodes[index]
            sizes[index] = min(MANY, node.size + sum(sizes[one] for one in node.in_place))
        return max(sizes, default=0)


class _Collector:
    """Finds every schema inside a schema, and what it does with a value."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.nodes: list[_Node] = []
        self.states = 0
        self.nesting = 0
        """The squares of the depths of all schemas."""
        self.unevaluated = False
        self._root = root
        self._numbers: dict[int, int] = {}
        self._waiting: list[tuple[dict[str, Any], _Node, int]] = []
        self._parents: list[int] = []
        self._entries = 0
        self._patterns = 0
        self._old_ids = "draft-04" in str(root.get("$schema", ""))[:200]
        self._add(root, 0, -1)
        while self._waiting:
            schema, node, depth = self._waiting.pop()
            self._read(schema, node, depth)
        for index in range(len(self.nodes) - 1, 0, -1):
            if self._parents[index] >= 0:
                self.nodes[self._parents[index]].size += self.nodes[index].size

    def _add(self, schema: Any, depth: int, parent: int) -> tuple[int, ...]:
        """The number of a schema, new or known; nothing for what is none and for `true` and `false`."""
        if not isinstance(schema, dict):
            return ()
        number = self._numbers.get(id(schema))
        if number is None:
            if len(self.nodes) >= _MOST_NODES or depth > _MOST_DEPTH:
                raise _Refused("schema_size")
            number = self._numbers[id(schema)] = len(self.nodes)
            node = _Node()
            self.nodes.append(node)
            self.nesting += depth * depth
            self._parents.append(parent)
            self._waiting.append((schema, node, depth))
        return (number,)

    def _count(self, entries: int) -> None:
        self._entries += entries
        if self._entries > _MOST_ENTRIES:
            raise _Refused("schema_size")

    def _read(self, schema: dict[str, Any], node: _Node, depth: int) -> None:
        self._count(len(schema) + 1)
        node.own += len(schema)
        here, depth = self._numbers[id(schema)], depth + 1
        for key, value in schema.items():
            if key in _IN_PLACE_LISTS or key == "prefixItems" or (key == "items" and isinstance(value, list)):
                into = node.in_place if key in _IN_PLACE_LISTS else node.one_below
                for child in self._listed(value):
                    into.extend(self._add(child, depth, here))
            elif key in _IN_PLACE:
                node.in_place.extend(self._add(value, depth, here))
            elif key in _BELOW:
                self.unevaluated = self.unevaluated or key in _UNEVALUATED_WORDS
                node.all_below.extend(self._add(value, depth, here))
            elif key == "properties":
                children = self._mapped(value)
                node.own += len(children)
                for name, child in children.items():
                    for number in self._add(child, depth, here):
                        node.one_below.append(number)
                        node.named[name] = number
            elif key == "patternProperties":
                for pattern, child in self._mapped(value).items():
                    node.per_key_character += self._pattern(pattern) * _PER_STATE
                    node.all_below.extend(self._add(child, depth, here))
            elif key in _IN_PLACE_MAPS:
                for child in self._mapped(value).values():
                    node.own += len(child) if isinstance(child, list) else 1
                    node.in_place.extend(self._add(child, depth, here))
            elif key in _DEFINITIONS:
                for child in self._mapped(value).values():
                    self._add(child, depth, here)
            else:
                self._plain(key, value, node, depth, here)

    def _plain(self, key: str, value: Any, node: _Node, depth: int, here: int) -> None:
        """A keyword that holds no schemas."""
        if key == "$ref":
            target = local_target(self._root, value) if isinstance(value, str) else None
            if not isinstance(target, dict | bool):
                raise _Refused("reference")
            node.in_place.extend(self._add(target, value.count("/"), -1))
        elif key in _DYNAMIC or (here and (key == "$id" or (key == "id" and self._old_ids)) and isinstance(value, str)):
            # Where these lead is known only while a value is checked, or depends on where the reference stands.
            raise _Refused("reference")
        elif key == "pattern" and isinstance(value, str):
            node.per_character += self._pattern(value) * _PER_STATE
        elif key in _PER_CHARACTER:
            node.per_character += _REGEX_FORMAT if value == "regex" else _PER_CHARACTER[key]
        elif key in _LISTED or key == "const":
            node.own += self._weight(value)
        elif key == "uniqueItems":
            node.deep = 4

    def _pattern(self, pattern: str) -> int:
        self._patterns += 1
        self._count(1 + len(pattern) // 8)
        states = pattern_states(pattern)
        self.states += states
        if _BACKTRACKS.search(pattern) or self._patterns > _MOST_PATTERNS or self.states > _MOST_STATES:
            raise _Refused("pattern")
        return states

    def _listed(self, value: Any) -> list[Any]:
        found = value if isinstance(value, list) else []
        self._count(len(found))
        return found

    def _mapped(self, value: Any) -> dict[str, Any]:
        found = value if isinstance(value, dict) else {}
        self._count(len(found))
        return found

    def _weight(self, value: Any) -> int:
        """Values inside a listed value; long strings count as several."""
        weight = 0
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                waiting += one.values()
                self._count(len(one))
            elif isinstance(one, list):
                waiting += one
                self._count(len(one))
            weight += 1 + len(one) // 64 if isinstance(one, str) else 1
        return weight


def _in_place_order(nodes: list[_Node]) -> tuple[list[int], int]:
    """The nodes, each after those it names in place, and the longest chain of such names. Raises where they go in a circle."""
    order: list[int] = []
    heights = [0] * len(nodes)
    state = [0] * len(nodes)  # 0 new, 1 begun, 2 done
    for start in range(len(nodes)):
        if state[start]:
            continue
        path = [(start, iter(nodes[start].in_place))]
        state[start] = 1
        while path:
            index, names = path[-1]
            for name in names:
                if state[name] == 1:
                    raise _Refused("reference")
                if not state[name]:
                    state[name] = 1
                    path.append((name, iter(nodes[name].in_place)))
                    break
            else:
                path.pop()
                state[index] = 2
                heights[index] = 1 + max((heights[name] for name in nodes[index].in_place), default=0)
                order.append(index)
    return order, max(heights, default=1)


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return [("", child) for child in value] if isinstance(value, list) else []


def _sizes_by_depth(value: Any) -> list[tuple[int, int]] | None:
    """(values, characters) of each depth, keys counted with the values they name; None: more than anybody checks."""
    sizes: list[tuple[int, int]] = []
    level: list[Any] = [value]
    keys, left = 0, _MOST_VALUES
    while level:
        left -= len(level)
        if left < 0:
            return None
        characters, names = keys, 0
        below: list[Any] = []
        for one in level:
            if isinstance(one, str):
                characters += len(one)
            elif isinstance(one, dict):
                below += one.values()
                names += sum(map(len, one))
            elif isinstance(one, list):
                below += one
        sizes.append((len(level), characters))
        level, keys = below, names
    return sizes


def pattern_states(pattern: str) -> int:
    """About how many states the automaton of a regular expression has, never far too few. Counted repeats multiply."""
    total = last = at = 0
    outer: list[int] = []
    while at < len(pattern):
        sign = pattern[at]
        at += 1
        if sign == "(":
            outer.append(total)
            total = last = 0
            continue
        if sign == ")":
            last = total + 1
            total = (outer.pop() if outer else 0) + last
        elif sign == "{" and (repeat := _REPEAT.match(pattern, at - 1)) is not None:
            at = repeat.end()
            times = max(int(repeat[1]) + (1 if repeat[2] else 0), int(repeat[3] or 0))
            total += last * max(0, times - 1)
            last *= max(1, times)
        elif sign in "*+?|":
            total += 1
            last = last + 1 if sign != "|" else 0
        else:
            start = at - 1
            if sign == "\\":
                at += 1
                if pattern[at - 1 : at + 1] in ("p{", "P{"):
                    at = _end(pattern, at, "}")
            elif sign == "[":
                at = _end(pattern, at, "]")
            atom = pattern[start:at]
            last = _STATES_OF.get(sign, 4) + (len(atom) // 4 if atom.isascii() else 4 * len(atom))
            if "\\p" in atom.lower():
                last += _CLASS_OF_UNICODE * atom.lower().count("\\p")
            total += last
        if total > MANY:
            return MANY
    return total + sum(outer)


def _end(pattern: str, at: int, bracket: str) -> int:
    """Behind the bracket that closes a character class or its name."""
    while at < len(pattern) and pattern[at] != bracket:
        at += 2 if pattern[at] == "\\" else 1
    return at + 1

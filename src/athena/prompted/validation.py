"""Do arguments fit a tool's schema? The one place that asks a schema library, and it is asked only when it is installed.

`jsonschema-rs` comes with the default install; the bare core checks the structure by hand: types of declared properties and
what is required. A schema that is no schema accepts everything: it is the client's, not the model's fault.

Schemas come from strangers and the library cannot be interrupted, so the work is bounded before it is begun (`schema_cost`):
what would take more steps than allowed is only looked at by hand, and the verdict says so. All checks of one answer share one
allowance. Patterns run on the engine that never backtracks.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from athena.bounded_cache import BoundedCache
from athena.formats.machine.value_types import SchemaTypes, ToolBook
from athena.schema_cost import MOST_BYTES, SchemaCost, SchemaRefusal

__all__ = ["ANSWER_STEPS", "LATE_STEPS", "STEPS", "ArgumentCheck", "SchemaCheck", "Unchecked", "Verdict", "compiled"]

Unchecked = Literal["", "schema_size", "reference", "pattern", "steps", "arguments_size", "answer_steps"]
"""Why arguments were not held against the whole schema: the schema's size, references or patterns are more than is checked;
this value would take too many steps; the arguments are too long; the answer has used up what all its checks may take."""

STEPS = 200_000
"""For one check: about two milliseconds."""
LATE_STEPS = 1_000_000
"""For one check that delays no request."""
ANSWER_STEPS = 3_000_000
"""For all checks of one answer, schemas made ready for them included."""
_STEPS_PER_CHARACTER = 2
"""To read arguments, for each of their characters."""
_STEPS_PER_BYTE = 16
"""To make a schema ready, for each byte of its text."""
_STEPS_TO_EXPLAIN = 1_000
"""A check up to this size is made once more to say what is wrong: the library keeps every branch it tried, kilobytes each."""
_MOST_ARGUMENT_CHARS = 1024 * 1024
_REGEX_BYTES = 1024 * 1024
_REGEX_CACHE_BYTES = 128 * 1024
_CACHE_BYTES = 24 * 1024 * 1024
_BYTES_PER_BYTE = 80
"""Memory of a schema that is ready, for each byte of its text."""


class Verdict(NamedTuple):
    """What is known about the arguments of one call."""

    problem: str = ""
    """Why they do not fit; empty when nothing speaks against them."""
    unchecked: Unchecked = ""
    """Why they were not held against the whole schema; empty when they were."""


class ArgumentCheck:
    """The checks of one answer's calls, by tool name."""

    def __init__(self, book: ToolBook, answer_steps: int = ANSWER_STEPS) -> None:
        self._book = book
        self._checks: dict[str, SchemaCheck] = {}
        self._left = answer_steps

    def verdict(self, name: str, arguments: str, steps: int = STEPS) -> Verdict:
        """Do these arguments fit the tool's schema, as far as `steps` can tell?"""
        schema = self._book.schema(name)
        if not schema:
            return Verdict()
        if len(arguments) > _MOST_ARGUMENT_CHARS:
            return Verdict(unchecked="arguments_size")
        self._left -= len(arguments) * _STEPS_PER_CHARACTER
        if self._left < 0:
            return Verdict(unchecked="answer_steps")
        try:
            value = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            # Legal JSON that msgspec does not read (a lone surrogate): the structure cannot be judged.
            return Verdict()
        check = self._checks.get(name)
        if check is None:
            check = self._checks[name] = self._made_ready(schema)
        needed = check.steps(value, len(arguments))
        if check.unchecked or needed > min(steps, self._left):
            over_answer = needed <= steps
            return Verdict(_about(name, check.by_hand(value)), check.unchecked or ("answer_steps" if over_answer else "steps"))
        self._left -= needed
        return Verdict(_about(name, check.problem(value, explain=needed <= _STEPS_TO_EXPLAIN)))

    def _made_ready(self, schema: dict[str, Any]) -> SchemaCheck:
        text = _text_of(schema)
        if text is None or len(text) > MOST_BYTES:
            return SchemaCheck(schema, unchecked="schema_size")
        found = _CHECKS.get(text)
        if found is not None:
            return found
        cost = len(text) * _STEPS_PER_BYTE
        if cost > self._left:
            return SchemaCheck(schema, unchecked="answer_steps")
        self._left -= cost
        return _ready(text)


def _about(name: str, reason: str) -> str:
    return f"the parameters of {name} do not fit its schema: {reason}" if reason else ""


class SchemaCheck:
    """One schema, made ready for checks."""

    __slots__ = ("_cost", "_schema", "_types", "_validator", "engine_bytes", "unchecked")

    def __init__(self, schema: dict[str, Any], *, unchecked: Unchecked = "", analysed: bool = False) -> None:
        self._schema = schema
        self._types = SchemaTypes(schema)
        self._validator: Any = None
        self._cost: SchemaCost | None = None
        self.unchecked: Unchecked = unchecked
        """Why the library is not asked; empty when it may be, and when there is none."""
        self.engine_bytes = 0
        if analysed:
            cost = SchemaCost(schema)
            refusal: SchemaRefusal = cost.refusal
            self.unchecked, self.engine_bytes = refusal, cost.engine_bytes
            self._validator = _validator(schema) if not refusal else None
            self._cost = cost if self._validator is not None else None

    @property
    def is_schema(self) -> bool:
        """Is this a schema, as far as the library was asked?"""
        return self._validator is not None or bool(self.unchecked)

    def steps(self, value: Any, characters: int = 0) -> int:
        """The most steps that a check of this value takes. Where its text has few `characters`, they tell enough."""
        if self._cost is None:
            return 0
        if characters and 0 < (few := self._cost.steps_of_text(characters)) <= _STEPS_TO_EXPLAIN:
            return few
        return self._cost.steps(value)

    def problem(self, value: Any, *, explain: bool = True) -> str:
        """Why a value does not fit; empty when it does. Without `explain` the reason may be vague."""
        validator = self._validator
        if validator is None:
            return self.by_hand(value)
        try:
            if validator.is_valid(value):
                return ""
            error = next(iter(validator.iter_errors(value)), None) if explain else None
        except (ValueError, TypeError, RecursionError):
            return ""
        if error is None:
            return self.by_hand(value) or "one of its rules is broken"
        where = "/".join(map(str, error.instance_path))
        return f"{where}: {error.message}"[:500] if where else str(error.message)[:500]

    def by_hand(self, value: Any) -> str:
        """Required properties are there and declared ones have their type."""
        return structural_problem(self._schema, value, self._types)

    def __call__(self, value: Any) -> str:
        """Why a value does not fit, as far as `STEPS` can tell."""
        return self.by_hand(value) if self.steps(value) > STEPS else self.problem(value)


def compiled(schema: dict[str, Any]) -> SchemaCheck:
    """The check for one schema. Requests repeat their tools, so what was made ready is kept for a while."""
    text = _text_of(schema)
    if text is None or len(text) > MOST_BYTES:
        return SchemaCheck(schema, unchecked="schema_size")
    return _ready(text)


def _text_of(schema: dict[str, Any]) -> bytes | None:
    try:
        return msgspec.json.encode(schema)
    except (msgspec.EncodeError, TypeError, UnicodeEncodeError, RecursionError):
        return None


_CHECKS: BoundedCache[bytes, SchemaCheck] = BoundedCache(_CACHE_BYTES)


def _ready(text: bytes) -> SchemaCheck:
    found = _CHECKS.get(text)
    if found is None:
        # Read anew: what a client's request shares between tools is not shared here, and nothing else can change it.
        found = SchemaCheck(msgspec.json.decode(text), analysed=True)
        _CHECKS.put(text, found, len(text) * _BYTES_PER_BYTE + found.engine_bytes)
    return found


def _refuse_reference(address: str) -> Any:
    """Schemas come from clients: nothing they point at is ever fetched, from the network or from a disk."""
    raise ValueError(f"references to other documents are not followed: {address}")


def _validator(schema: dict[str, Any]) -> Any:
    """The library's check; None when it is not installed or takes this for no schema."""
    try:
        import jsonschema_rs
    except ImportError:
        return None
    patterns = jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_CACHE_BYTES)
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse_reference, pattern_options=patterns)
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError):
        return None


def structural_problem(schema: dict[str, Any], value: Any, types: SchemaTypes | None = None) -> str:
    """Required properties are there and declared ones have their type."""
    if not isinstance(value, dict):
        return "not an object"
    types = types or SchemaTypes(schema)
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            return f"{name!r} is a required property"
    properties = schema.get("properties")
    for name, item in value.items():
        wanted = properties.get(name) if isinstance(properties, dict) else None
        if wanted is None:
            if schema.get("additionalProperties") is False:
                return f"{name!r} is not a declared property"
            continue
        allowed = types.of(wanted).types
        if allowed is not None and not _types_of(item) & allowed:
            return f"{name}: is not of type {' or '.join(sorted(allowed))}"
    return ""


def _types_of(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number", "integer"} if value.is_integer() else {"number"})
    if isinstance(value, str):
        return frozenset({"string"})
    return frozenset({"array"} if isinstance(value, list) else {"object"})

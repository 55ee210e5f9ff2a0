"""How formats with invoke tags write calls and results, the opposite direction of `bodies/invoke`."""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import arguments_of, plain_value, result_text
from athena.model.parts import ToolCall, ToolResult


def invoke_calls(calls: Sequence[ToolCall], namespace: str = "") -> str:
    """One invoke per call, each tag on a line of its own, values verbatim."""
    return "".join(_invoke(call, namespace) for call in calls)


def _invoke(call: ToolCall, namespace: str) -> str:
    parameters = "".join(
        f'<{namespace}parameter name="{key}">{plain_value(value)}</{namespace}parameter>\n'
        for key, value in arguments_of(call).items()
    )
    return f'<{namespace}invoke name="{call.name}">\n{parameters}</{namespace}invoke>\n'


def invoke_rule(*ends: str) -> BareNameRule:
    """Values have no escapes, names stand in attributes. `ends`: the tags that end a section."""
    return BareNameRule(
        reason="the name does not fit into an attribute",
        characters='"\n>',
        markers=("<parameter", "</parameter>", "<invoke", "</invoke>", *ends),
    )


def function_results(results: Sequence[ToolResult]) -> str:
    """The results of a turn as Claude's prompt writes them, errors apart."""
    return "<function_results>\n" + "".join(map(_result, results)) + "</function_results>"


def _result(result: ToolResult) -> str:
    if result.is_error:
        return f"<error>\n{result_text(result)}\n</error>\n"
    name = f"<tool_name>{result.name}</tool_name>\n" if result.name else ""
    return f"<result>\n{name}<stdout>{result_text(result)}</stdout>\n</result>\n"

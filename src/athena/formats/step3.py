"""Step 3 of StepFun: invoke tags of its own namespace between special tokens.

    <｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="a">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>

The tokens have full-width bars like DeepSeek's but plain underscores. Origin: vLLM's step3_tool_parser and SGLang's
step3_detector; the template's results are not known, so they go in tags of the same namespace.
"""  # noqa: E501 - the sample is one line for the model

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.invoke import NO_ATTRIBUTE, Invoke, InvokeReader
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, result_text
from athena.model.parts import ToolCall, ToolResult

NAMESPACE = "steptml:"


def _spellings(word: str) -> tuple[str, ...]:
    """A token as it is and with ASCII bars."""
    return (f"<｜{word}｜>", f"<|{word}|>")


CALLS_BEGIN, CALLS_END = _spellings("tool_calls_begin"), _spellings("tool_calls_end")
CALL_BEGIN, CALL_END = _spellings("tool_call_begin"), _spellings("tool_call_end")
SEPARATOR = _spellings("tool_sep")

SHAPE = Invoke(
    section_begin=CALLS_BEGIN,
    section_end=CALLS_END,
    call=(f"<{NAMESPACE}invoke",),
    call_end=(f"</{NAMESPACE}invoke>", *CALL_END),
    parameter=(f"<{NAMESPACE}parameter",),
    parameter_end=(f"</{NAMESPACE}parameter>",),
    ignored=(*(f"function{token}" for token in SEPARATOR), *SEPARATOR, *CALL_BEGIN, *CALL_END),
)
READ = InvokeReader(SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One section for all calls of a turn."""
    return CALLS_BEGIN[0] + "".join(map(_call, calls)) + CALLS_END[0]


def _call(call: ToolCall) -> str:
    parameters = "".join(
        f'<{NAMESPACE}parameter name="{key}">{plain_value(value)}</{NAMESPACE}parameter>'
        for key, value in arguments_of(call).items()
    )
    invoke = f'<{NAMESPACE}invoke name="{call.name}">{parameters}</{NAMESPACE}invoke>'
    return f"{CALL_BEGIN[0]}function{SEPARATOR[0]}{invoke}{CALL_END[0]}"


def render_results(results: Sequence[ToolResult]) -> str:
    """One element per result."""
    return "\n".join(f"<{NAMESPACE}result>{result_text(result)}</{NAMESPACE}result>" for result in results)


_FORM = f'<{NAMESPACE}invoke name="NAME"><{NAMESPACE}parameter name="KEY">VALUE</{NAMESPACE}parameter></{NAMESPACE}invoke>'
TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "A section of calls is written exactly so:\n"
    f"{CALLS_BEGIN[0]}{CALL_BEGIN[0]}function{SEPARATOR[0]}{_FORM}{CALL_END[0]}{CALLS_END[0]}"
)


FORMAT = Format(
    id="step3",
    reserved=True,
    openers=(
        *(Opener(token, READ, never=READ.never) for token in CALLS_BEGIN),
        Opener(CALL_BEGIN[0], READ),
        Opener(CALL_BEGIN[1], READ, auto=False, rank=-1),
        *(Opener(tag, READ, never=NO_ATTRIBUTE) for tag in SHAPE.call),
    ),
    closers=(*CALLS_END, *SHAPE.call_end, *SHAPE.parameter_end, *SEPARATOR),
    turn_ends=("<|EOT|>",),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(
        reason="the name does not fit into an attribute",
        characters='"\n>',
        markers=(*SHAPE.parameter, *SHAPE.parameter_end, *SHAPE.call, *SHAPE.call_end, *SHAPE.section_end),
    ),
)

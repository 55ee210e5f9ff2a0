"""Chat templates of our own invention, each with the format that must be learnt from it, and some that no format fits."""

from __future__ import annotations

from typing import NamedTuple

from athena.formats.declared.description import (
    Call,
    FormatDescription,
    Json,
    Parameter,
    Section,
    TypeWords,
)

_TOOLS = "{% if tools %}[TOOLS] {{ tools | tojson }}{% endif %}\n"


def chat(calls: str, *, reasoning: str = "", content: str = "{{ message.content or '' }}", turn: str = "@{}: ") -> str:
    """A template whose assistant turns are made of these parts."""
    begin = turn.replace("{}", "' ~ message.role ~ '")
    return (
        _TOOLS
        + "{% for message in messages %}{{ '" + begin + "' }}"
        + "{% if message.role == 'assistant' %}"
        + reasoning + content + "{% if message.tool_calls %}" + calls + "{% endif %}"
        + "{% else %}{{ message.content }}{% endif %}{{ '<|done|>\\n' }}{% endfor %}"
        + "{% if add_generation_prompt %}{{ '" + turn.replace("{}", "assistant") + "' }}{% endif %}"
    )  # fmt: skip


def each(call: str, between: str = "") -> str:
    """All calls, one after another."""
    joint = "{% if not loop.last %}{{ '" + between + "' }}{% endif %}" if between else ""
    return "{% for call in message.tool_calls %}{% set f = call.function %}" + call + joint + "{% endfor %}"


def parameters(one: str, between: str = "") -> str:
    """All parameters of a call, one after another."""
    joint = "{% if not loop.last %}{{ '" + between + "' }}{% endif %}" if between else ""
    return "{% for key, value in f.arguments.items() %}" + one + joint + "{% endfor %}"


TEXT = "{% if value is string %}{{ value }}{% else %}{{ value | tojson }}{% endif %}"


class Invented(NamedTuple):
    """One template."""

    template: str
    expected: FormatDescription


INVENTED = {
    "json": Invented(
        chat(
            "{{ '<|calls|>' }}[" + each("{{ {'tool': f.name, 'input': f.arguments} | tojson }}", ", ") + "]{{ '<|/calls|>' }}"
        ),
        FormatDescription(
            id="json",
            reserved=True,
            turn_ends=("<|done|>",),
            section=Section("<|calls|>", "<|/calls|>"),
            call=Call(body="json", between=", ", list=True),
            json=Json(name="tool", arguments="input"),
        ),
    ),
    "tags": Invented(
        chat(each("<do={{ f.name }}>\n" + parameters("<p={{ key }}>" + TEXT + "</p>\n") + "</do>")),
        FormatDescription(
            id="tags",
            turn_ends=("<|done|>",),
            call=Call(body="tagged", begin="<do=", arguments=">", end="\n</do>"),
            parameter=Parameter(begin="\n<p=", key_end=">", end="</p>"),
        ),
    ),
    "pythonic": Invented(
        chat(
            "{{ '<|py|>' }}["
            + each(
                "{{ f.name }}("
                + parameters(
                    "{{ key }}={% if value is boolean or value is none %}{{ value }}{% else %}{{ value | tojson }}{% endif %}",
                    ", ",
                )
                + ")",
                ", ",
            )
            + "]{{ '<|/py|>' }}"
        ),
        FormatDescription(
            id="pythonic",
            reserved=True,
            turn_ends=("<|done|>",),
            section=Section("<|py|>", "<|/py|>"),
            call=Call(body="python", between=", ", list=True),
        ),
    ),
    "control_tokens": Invented(
        chat("<|run|>" + each("<|fn|>{{ f.name }}<|with|>{{ f.arguments | tojson }}<|nf|>") + "<|ran|>"),
        FormatDescription(
            id="control_tokens",
            reserved=True,
            turn_ends=("<|done|>",),
            section=Section("<|run|>", "<|ran|>"),
            call=Call(body="headed", begin="<|fn|>", arguments="<|with|>", end="<|nf|>"),
        ),
    ),
    "ids": Invented(
        chat(each("[CALL]{{ call.id }}[NAME]{{ f.name }}[WITH]{{ f.arguments | tojson }}[DONE]")),
        FormatDescription(
            id="ids",
            reserved=True,
            turn_ends=("<|done|>",),
            call=Call(body="headed", begin="[CALL]", head="{id}[NAME]{name}", arguments="[WITH]", end="[DONE]"),
        ),
    ),
    "counted": Invented(
        chat(each("<|step|>tools.{{ f.name }}#{{ loop.index0 }}<|args|>{{ f.arguments | tojson }}<|/step|>")),
        FormatDescription(
            id="counted",
            reserved=True,
            turn_ends=("<|done|>",),
            call=Call(body="headed", begin="<|step|>", head="tools.{name}#{index}", arguments="<|args|>", end="<|/step|>"),
        ),
    ),
    "reasoning": Invented(
        chat(
            each('<act>\n{{ {"name": f.name, "arguments": f.arguments} | tojson }}\n</act>', "\\n"),
            reasoning="{% if message.reasoning_content %}<muse>\n{{ message.reasoning_content }}\n</muse>\n{% endif %}",
        ),
        FormatDescription(
            id="reasoning",
            thinking=(("<muse>", "</muse>"),),
            turn_ends=("<|done|>",),
            call=Call(body="json", begin="<act>\n", end="\n</act>", between="\n"),
        ),
    ),
    "opened_reasoning": Invented(
        chat(
            each('<act>\n{{ {"name": f.name, "arguments": f.arguments} | tojson }}\n</act>', "\\n"),
            reasoning="{% if message.reasoning_content %}<muse>\n{{ message.reasoning_content }}\n</muse>\n{% endif %}",
        )
        + "{% if add_generation_prompt and enable_thinking is not false %}{{ '<muse>\\n' }}{% endif %}",
        FormatDescription(
            id="opened_reasoning",
            thinking=(("<muse>", "</muse>"),),
            starts_in_thinking=True,
            turn_ends=("<|done|>",),
            call=Call(body="json", begin="<act>\n", end="\n</act>", between="\n"),
        ),
    ),
    "nested_wrappers": Invented(
        chat(
            "<plan>\n"
            + each(
                '<step>\n<use name="{{ f.name }}">\n'
                + parameters('<set key="{{ key }}">' + TEXT + "</set>\n")
                + "</use>\n</step>\n"
            )
            + "</plan>"
        ),
        FormatDescription(
            id="nested_wrappers",
            turn_ends=("<|done|>",),
            section=Section("<plan>", "\n</plan>"),
            call=Call(body="tagged", begin='\n<step>\n<use name="', arguments='">', end="\n</use>\n</step>"),
            parameter=Parameter(begin='\n<set key="', key_end='">', end="</set>"),
        ),
    ),
    "attributes": Invented(
        chat(
            each(
                '<call tool="{{ f.name }}" id="{{ call.id }}">'
                + parameters(
                    '<arg key="{{ key }}" kind="{% if value is string %}text{% else %}json{% endif %}">' + TEXT + "</arg>"
                )
                + "</call>"
            )
        ),
        FormatDescription(
            id="attributes",
            turn_ends=("<|done|>",),
            call=Call(body="tagged", begin='<call tool="', head='{name}" id="{id}', arguments='">', end="</call>"),
            parameter=Parameter(
                begin='<arg key="',
                key_end='">',
                end="</arg>",
                types=TypeWords(before='" kind="', string="text", other="json"),
            ),
        ),
    ),
    "lines": Invented(
        chat(each("<tc>{{ f.name }}\n" + parameters("<k>{{ key }}</k>\n<v>\n" + TEXT + "{{ '\\n' }}</v>\n") + "</tc>")),
        FormatDescription(
            id="lines",
            turn_ends=("<|done|>",),
            call=Call(body="tagged", begin="<tc>", end="\n</tc>"),
            parameter=Parameter(begin="\n<k>", key_end="</k>\n<v>\n", end="\n</v>"),
        ),
    ),
    "elements": Invented(
        chat(each('<run tool="{{ f.name }}">\n' + parameters("<{{ key }}>" + TEXT + "</{{ key }}>\n") + "</run>\n")),
        FormatDescription(
            id="elements",
            turn_ends=("<|done|>",),
            call=Call(body="elements", begin='<run tool="', arguments='">\n', end="\n</run>\n"),
        ),
    ),
    "json_values": Invented(
        chat(each("<tc>{{ f.name }}\n" + parameters("<k>{{ key }}</k><v>{{ value | tojson }}</v>\n") + "</tc>")),
        FormatDescription(
            id="json_values",
            turn_ends=("<|done|>",),
            call=Call(body="tagged", begin="<tc>", end="\n</tc>"),
            parameter=Parameter(begin="\n<k>", key_end="</k><v>", end="</v>", values="json"),
        ),
    ),
    "wrapped_json": Invented(
        chat(
            each(
                "<c>{{ {'id': call.id, 'function': {'name': f.name, 'arguments': f.arguments | tojson}} | tojson }}</c>",
            )
        ),
        FormatDescription(
            id="wrapped_json",
            turn_ends=("<|done|>",),
            call=Call(body="json", begin="<c>", end="</c>"),
            json=Json(id="id", wrapper="function", encoded=True),
        ),
    ),
    "name_is_key": Invented(
        chat("[ACTS]" + each("{{ {f.name: f.arguments} | tojson }}", "\\n") + "[/ACTS]"),
        FormatDescription(
            id="name_is_key",
            reserved=True,
            turn_ends=("<|done|>",),
            section=Section("[ACTS]", "[/ACTS]"),
            call=Call(body="json", between="\n"),
            json=Json(name_is_key=True),
        ),
    ),
    "cdata": Invented(
        chat(
            each(
                '<call name="{{ f.name }}">'
                + parameters(
                    '<in name="{{ key }}">{% if value is string and "<" in value %}<![CDATA[{{ value }}]]>{% else %}'
                    + TEXT
                    + "{% endif %}</in>"
                )
                + "</call>",
            )
        ),
        FormatDescription(
            id="cdata",
            turn_ends=("<|done|>",),
            call=Call(body="tagged", begin='<call name="', arguments='">', end="</call>"),
            parameter=Parameter(begin='<in name="', key_end='">', end="</in>", cdata=True),
        ),
    ),
    "literals": Invented(
        chat(
            each(
                "<|tool>call:{{ f.name ~ '{' }}"
                + parameters(
                    "{{ key }}:{% if value is string %}<|q|>{{ value }}<|q|>{% else %}{{ value | tojson }}{% endif %}", ","
                )
                + "}<tool|>"
            )
        ),
        FormatDescription(
            id="literals",
            reserved=True,
            turn_ends=("<|done|>",),
            call=Call(body="literals", begin="<|tool>", end="<tool|>", quote="<|q|>"),
        ),
    ),
    "answer_in_tags": Invented(
        chat(
            "<|part|>tools<|is|>" + each("<|part|>{{ f.name }}<|is|>{{ f.arguments | tojson }}<|end|>") + "<|end|>",
            reasoning="{% if message.thinking %}<|part|>thoughts<|is|>{{ message.thinking }}<|end|>{% endif %}",
            content="{% if message.content %}<|part|>answer<|is|>{{ message.content }}<|end|>{% endif %}",
        ),
        FormatDescription(
            id="answer_in_tags",
            reserved=True,
            thinking=(("<|part|>thoughts<|is|>", "<|end|>"),),
            answer=(("<|part|>answer<|is|>", "<|end|>"),),
            turn_ends=("<|done|>",),
            section=Section("<|part|>tools<|is|>", "<|end|>"),
            call=Call(body="headed", begin="<|part|>", arguments="<|is|>", end="<|end|>"),
        ),
    ),
}

REFUSED = {
    "no calls": (chat(""), "it does not write the calls"),
    "no arguments": (chat(each("<call>{{ f.name }}</call>")), "it does not write the arguments"),
    "an ordinary word": (
        chat(each("Calling {{ f.name }} with {{ f.arguments | tojson }}. ")),
        "too ordinary",
    ),
    "no end of values": (
        chat(each("<go>{{ f.name }} " + parameters("{{ key }} {{ value }}", " ") + "</go>")),
        "nothing marks where a parameter",
    ),
    "values that are lost": (
        chat(
            each("<call>{{ f.name }}\n" + parameters("<a>{{ key }}</a><b>{{ value | string | upper | lower }}</b>") + "</call>")
        ),
        "was read back as",
    ),
    "another form for the second call": (
        chat(
            each(
                "{% if loop.first %}<one>{{ f.name }}<with>{{ f.arguments | tojson }}</one>"
                "{% else %}<two>{{ f.arguments | tojson }}<for>{{ f.name }}</two>{% endif %}"
            )
        ),
        "the name of a call does not stand before its arguments",
    ),
    "no answer": (chat(each("<c>{{ f | tojson }}</c>"), content=""), "it does not write what an answer says"),
    "no template": ("{% if %}", "this is no chat template"),
    "always refuses": ("{{ raise_exception('Only today!') }}", "Only today!"),
}

HOSTILE = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "memory": "{% set box = namespace(x='abcdefgh') %}{% for i in range(40) %}{% set box.x = box.x ~ box.x %}{% endfor %}",
    "output": "{% for a in range(99999) %}{% for b in range(999) %}{{ 'abcdefghijklmnopqrstuvwxyz' }}{% endfor %}{% endfor %}",
    "multiplication": "{{ 'x' * 999999999999 }}",
    "attributes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "format strings": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "globals": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "imports": "{% include '/etc/passwd' %}",
    "endless macros": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "changed data": "{% set _ = messages.append(1) %}",
}

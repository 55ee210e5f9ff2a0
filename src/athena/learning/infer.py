"""From renderings to a description: what the template writes before, between and after the words of the probe calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from athena.errors import CannotLearn
from athena.formats.declared.build import is_control
from athena.formats.declared.description import (
    Call,
    FormatDescription,
    Json,
    Parameter,
    Section,
    TypeWords,
    pieces,
    weak,
)
from athena.formats.machine.base import THINK
from athena.learning.frame import Frame, answer_of, find_frame, own_part, turn_ends_of
from athena.learning.json_places import Spot, arguments_span, call_object
from athena.learning.literals import behind_last_tag, common_start, repeated_end, tags, through_tags, tokens
from athena.learning.probes import (
    FIRST,
    LONG_ID,
    SECOND,
    STRINGS,
    TYPES,
    WAYS,
    ProbeCall,
    Render,
    RenderFailed,
    Way,
)

_Form: TypeAlias = tuple[Call, Section, Json, Parameter | None]
_DIGITS = re.compile(r"[0-9]+")


class LearntFormat(NamedTuple):
    """A description, and how the template is to be rendered to get what it describes."""

    description: FormatDescription
    way: Way
    frame: Frame
    parallel: bool
    """Does the template write several calls?"""


def infer(render: Render, format_id: str) -> LearntFormat:
    """The format of a template. Raises CannotLearn."""
    reasons: list[str] = []
    for way in WAYS:
        try:
            return _infer(render, way, format_id)
        except RenderFailed as failed:
            reasons.append(f"it cannot be rendered: {failed.message}")
        except CannotLearn as refused:
            reasons.append(refused.message)
        except (ValueError, msgspec.ValidationError) as refused:
            reasons.append(str(refused))
    # A template that refuses one way of passing arguments mostly says the true reason in another.
    told = [reason for reason in reasons if not reason.startswith("it cannot be rendered")]
    raise CannotLearn((told or reasons)[0])


def _infer(render: Render, way: Way, format_id: str) -> LearntFormat:
    calls: tuple[ProbeCall, ...] = (FIRST, SECOND)
    try:
        text = answer_of(render(way.conversation(calls)))
        if SECOND.name not in text and FIRST.name in text:
            calls = (FIRST,)
    except RenderFailed:
        calls = (FIRST,)
        text = answer_of(render(way.conversation(calls)))
    if FIRST.name not in text:
        raise CannotLearn("it does not write the calls of an answer: their names are not in what it renders")
    lost = [word for word in (*STRINGS, *STRINGS.values()) if word not in text]
    if lost:
        raise CannotLearn("it does not write the arguments of calls, or not as they are")
    frame = find_frame(render, way, calls)
    body = own_part(text, frame)
    shape = _Shape(render, way, calls, body, frame)
    call, section, keys, parameter = shape.read()
    turn_ends = turn_ends_of(frame, shape.behind)
    first = (*pieces(section.begin), *pieces(call.begin), "")[0]
    description = FormatDescription(
        id=format_id,
        reserved=is_control(first),
        ids="nine" if _wants_nine(render, way) else "any",
        thinking=(frame.thinking,) if frame.thinking[0] else THINK,
        starts_in_thinking=frame.opens_thinking,
        answer=(frame.answer,) if frame.answer[0] else (),
        turn_ends=turn_ends,
        section=section,
        call=call,
        json=keys,
        parameter=parameter,
    )
    return LearntFormat(description, way, frame, len(calls) > 1)


def _wants_nine(render: Render, way: Way) -> bool:
    """Does the template refuse long ids? It took the probe's, which have nine characters."""
    try:
        render(way.conversation((msgspec.structs.replace(FIRST, id=LONG_ID),)))
    except RenderFailed:
        return True
    return False


# -- the calls -----------------------------------------------------------------------------------------------------------------


class _Edges(NamedTuple):
    section: Section
    begin: str
    end: str
    between: str
    behind: str
    """Behind everything: the end of the turn."""


class _Shape:
    """The form of the calls in one rendering."""

    def __init__(self, render: Render, way: Way, calls: tuple[ProbeCall, ...], text: str, frame: Frame) -> None:
        self._render = render
        self._way = way
        self._calls = calls
        self._text = text
        self._frame = frame
        self.behind = ""

    def read(self) -> _Form:
        objects = [call_object(self._text, call, self._calls) for call in self._calls]
        if all(found is not None for found in objects):
            return self._json([found for found in objects if found is not None])
        arguments = [arguments_span(self._text, call) for call in self._calls]
        if all(span is not None for span in arguments):
            return self._headed([span for span in arguments if span is not None])
        return self._parameters()

    # -- JSON with everything in it ----------------------------------------------------------------------------------------

    def _json(self, found: list[tuple[Spot, Json]]) -> _Form:
        spots = [spot for spot, _ in found]
        edges = self._edges(spots, brackets="[]")
        keys = found[0][1]
        call = Call(body="json", begin=edges.begin, end=edges.end, between=edges.between, list=self._listed)
        return call, edges.section, keys, None

    # -- a head, then JSON -------------------------------------------------------------------------------------------------

    def _headed(self, spans: list[tuple[Spot, bool]]) -> _Form:
        if any(encoded for _, encoded in spans):
            raise CannotLearn("it writes arguments as a JSON string after the name")
        heads = [self._head(call, 0 if not number else spans[number - 1][0].end, spans[number][0].start)
                 for number, call in enumerate(self._calls)]  # fmt: skip
        spots = [Spot(head.start, span.end) for head, (span, _) in zip(heads, spans, strict=True)]
        edges = self._edges(spots)
        begin, head, arguments = self._split_head(edges.begin, heads)
        call = Call(body="headed", begin=begin, head=head, arguments=arguments, end=edges.end, between=edges.between)
        return call, edges.section, Json(), None

    def _head(self, call: ProbeCall, start: int, end: int) -> _HeadSpot:
        """The head of a call between two places: where its first hole begins, and its text with the holes named."""
        text = self._text[start:end]
        first = min((at for at in (text.find(call.name), text.find(call.id)) if at >= 0), default=-1)
        if first < 0:
            raise CannotLearn("the name of a call does not stand before its arguments")
        form = text[first:].replace(call.name, "\0name\0").replace(call.id, "\0id\0")
        return _HeadSpot(start + first, form)

    def _split_head(self, begin: str, heads: Sequence[_HeadSpot]) -> tuple[str, str, str]:
        """(marker, head, what stands after it): words after the marker's last tag belong to the head."""
        forms = [head.form for head in heads]
        form = _counted(forms) if len(forms) > 1 else forms[0]
        cut = behind_last_tag(begin)
        words = begin[cut:].strip()
        if cut and words and not set(words) & set("<>[]=\"'"):
            begin, form = begin[:cut], begin[cut:].lstrip() + form
        last = form.rfind("\0") + 1
        head, arguments = form[:last], form[last:]
        if "{" in head.replace("\0", ""):
            raise CannotLearn(f"the head of a call holds a brace: {_shown(head)!r}")
        for hole in ("name", "id", "index"):
            head = head.replace(f"\0{hole}\0", "{" + hole + "}")
        return begin, head.strip(), arguments

    # -- parameters --------------------------------------------------------------------------------------------------------

    def _parameters(self) -> _Form:
        text, call = self._text, self._calls[0]
        keys = list(STRINGS)
        places = [text.find(key) for key in keys]
        values = [text.find(STRINGS[key]) for key in keys]
        if sorted((*places, *values)) != [at for pair in zip(places, values, strict=True) for at in pair]:
            raise CannotLearn("the parameters of a call do not follow each other, each key before its value")
        if any(f"</{key}>" in text for key in keys):
            return self._elements()
        mids = {text[place + len(key) : value] for key, place, value in zip(keys, places, values, strict=True)}
        gaps = {
            text[values[number] + len(STRINGS[key]) : places[number + 1]] for number, key in enumerate(keys[:-1])
        }  # fmt: skip
        if len(mids) > 1 or len(gaps) > 1:
            raise CannotLearn("it does not write all parameters of a call in the same way")
        mid, gap = mids.pop(), gaps.pop()
        first = self._head(call, 0, places[0])
        if "<" not in mid and re.fullmatch(r"\s*=\s*['\"]?", mid) and text[: places[0]].rstrip().endswith("("):
            return self._python()
        if mid.startswith(":") and tags(mid) and text[: places[0]].endswith("{"):
            return self._literals(mid.removeprefix(":"))
        return self._tagged(first, values[-1] + len(STRINGS[keys[-1]]), mid, gap)

    def _tagged(self, first: _HeadSpot, last: int, mid: str, gap: str) -> _Form:
        text = self._text
        before = first.form[first.form.rfind("\0") + 1 :]
        parameter_begin = repeated_end(gap, before)
        if not parameter_begin.strip():
            raise CannotLearn("nothing marks where a parameter begins")
        end_gap = gap[: len(gap) - len(parameter_begin)]
        parameter_end = common_start(end_gap, text[last:])
        if not parameter_end.strip():
            raise CannotLearn("nothing marks where a parameter's value ends")
        between = end_gap[len(parameter_end) :]
        spots = [Spot(first.start, last + len(parameter_end))]
        heads = [_HeadSpot(first.start, first.form[: len(first.form) - len(parameter_begin)])]
        if len(self._calls) > 1:
            spot, head = self._second(spots[0].end, parameter_begin, parameter_end)
            spots.append(spot)
            heads.append(head)
        edges = self._edges(spots)
        begin, head_form, arguments = self._split_head(edges.begin, heads)
        value_quote = mid.endswith('"') and parameter_end.startswith('"')
        if value_quote:
            mid, parameter_end = mid[:-1], parameter_end[1:]
        parameter = Parameter(
            begin=parameter_begin,
            key_end=mid,
            end=parameter_end,
            between=between,
            values="json" if value_quote else "text",
            cdata=self._uses_cdata(),
        )
        parameter = self._with_types(parameter)
        call = Call(body="tagged", begin=begin, head=head_form, arguments=arguments, end=edges.end, between=edges.between)
        return call, edges.section, Json(), parameter

    def _elements(self) -> _Form:
        """`<KEY>value</KEY>`, perhaps with a token before every tag."""
        spots: list[Spot] = []
        heads: list[_HeadSpot] = []
        prefix = ""
        at = 0
        for probe in self._calls:
            before = at
            for key, value in probe.arguments.items():
                begin = self._text.find(f"<{key}>{value}", at)
                end = self._text.find(f"</{key}>", begin)
                if begin < 0 or end < 0:
                    raise CannotLearn("it does not write every parameter as one element named by its key")
                if at == before:
                    prefix = self._text[begin + len(f"<{key}>{value}") : end]
                    heads.append(self._head(probe, before, begin - len(prefix)))
                at = end + len(f"</{key}>")
            spots.append(Spot(heads[-1].start, at))
        edges = self._edges(spots)
        marker, head, arguments = self._split_head(edges.begin, heads)
        call = Call(
            body="elements",
            begin=marker,
            head=head,
            arguments=arguments,
            end=edges.end,
            between=edges.between,
            prefix=prefix,
        )
        return call, edges.section, Json(), None

    def _second(self, start: int, parameter_begin: str, parameter_end: str) -> tuple[Spot, _HeadSpot]:
        """The second call, which has one parameter."""
        (key, value), *_ = SECOND.arguments.items()
        place, value_at = self._text.find(key, start), self._text.find(value, start)
        if place < 0 or value_at < place:
            raise CannotLearn("it writes the second call of an answer in another way than the first")
        head = self._head(SECOND, start, place)
        end = value_at + len(value)
        if not head.form.endswith(parameter_begin) or not self._text.startswith(parameter_end, end):
            raise CannotLearn("it writes the parameters of the second call in another way than those of the first")
        return Spot(head.start, end + len(parameter_end)), _HeadSpot(head.start, head.form[: -len(parameter_begin)])

    def _with_types(self, parameter: Parameter) -> Parameter:
        """Look at values of every type: does the tag say which one it is?"""
        call = ProbeCall(FIRST.name, TYPES)
        text = own_part(answer_of(self._render(self._way.conversation((call,)))), self._frame)
        keys = list(TYPES)
        found: dict[str, str] = {}
        quoted = '"' if parameter.values == "json" else ""
        gap = parameter.end + parameter.between + parameter.begin
        for number, key in enumerate(keys):
            at = text.find(parameter.begin + key)
            if at < 0:
                raise CannotLearn("it does not write parameters of all types in the same way")
            rest = text[at + len(parameter.begin + key) :]
            following = gap + keys[number + 1] if number + 1 < len(keys) else parameter.end
            found[key] = rest.partition(following)[0]
        string = found["kalpone"]
        mid = string[: string.find(quoted + "valpone")]
        words = _type_words({key: text for key, text in found.items() if key != "kalpone"}, mid)
        if words is None:
            return parameter
        return msgspec.structs.replace(parameter, types=words[0], key_end=words[1])

    def _uses_cdata(self) -> bool:
        call = ProbeCall(FIRST.name, {"kalpone": "a < b\n& vcdata"})
        try:
            return "<![CDATA[" in answer_of(self._render(self._way.conversation((call,))))
        except RenderFailed:
            return False

    # -- Python, and literals with quoting tokens --------------------------------------------------------------------------

    def _python(self) -> _Form:
        spots = []
        at = 0
        for call in self._calls:
            start = self._text.find(call.name, at)
            *_, last = call.arguments.values()
            end = self._text.find(")", self._text.find(last, start)) + 1
            if start < 0 or not end:
                raise CannotLearn("it writes calls like Python, but without their brackets")
            spots.append(Spot(start, end))
            at = end
        edges = self._edges(spots, brackets="[]")
        return (
            Call(body="python", begin=edges.begin, end=edges.end, between=edges.between, list=self._listed),
            edges.section,
            Json(),
            None,
        )

    def _literals(self, quote: str) -> _Form:
        spots = []
        at = 0
        for call in self._calls:
            start = self._text.find("call:" + call.name + "{", at)
            *_, last = call.arguments.values()
            end = self._text.find(quote + "}", self._text.find(last, start)) + len(quote) + 1
            if start < 0 or end <= len(quote):
                raise CannotLearn("it writes calls with quoting tokens, but not as call:NAME{key:value}")
            spots.append(Spot(start, end))
            at = end
        edges = self._edges(spots)
        return (
            Call(body="literals", begin=edges.begin, end=edges.end, between=edges.between, quote=quote),
            edges.section,
            Json(),
            None,
        )

    # -- what stands around ------------------------------------------------------------------------------------------------

    _listed = False

    def _edges(self, spots: Sequence[Spot], brackets: str = "") -> _Edges:
        """What stands before, between and after the calls, told apart by what comes again."""
        before, behind = self._text[: spots[0].start], self._text[spots[-1].end :]
        if brackets and before.rstrip().endswith(brackets[0]) and behind.lstrip().startswith(brackets[1]):
            self._listed = True
            before, behind = before.rstrip()[:-1], behind.lstrip()[1:]
        begin = end = between = ""
        if len(spots) > 1:
            between = self._text[spots[0].end : spots[1].start]
            if between.strip() not in ("", ",", ";"):
                begin = repeated_end(between, before)
                end = common_start(between[: len(between) - len(begin)], behind)
                between = between[len(end) : len(between) - len(begin)]
                if between.strip() and not (begin or end):
                    raise CannotLearn(
                        f"what stands between two calls is {_shown(between)!r}, and neither before nor after them"
                    )
        else:
            begin, before = before, ""
        if not begin and not before.strip() and not brackets:
            raise CannotLearn("nothing marks where a call begins")
        section_begin = before[: len(before) - len(begin)] if len(spots) > 1 else ""
        behind = behind[len(end) :]
        self._check_marker(section_begin or begin)
        ends = behind.removesuffix(self._frame.turn_end) if self._frame.turn_end.strip() else behind
        depth = len(tags(section_begin))
        if len(spots) == 1:
            end = through_tags(ends, max(1, len(tags(begin)))) if begin.strip() else ""
            section_end, ends = "", ends[len(end) :]
        else:
            section_end = through_tags(ends, depth) if depth else ""
            if section_begin.strip() and not depth:
                section_end = ends if ends.strip() and not tags(ends) else ""
            ends = ends[len(section_end) :]
        self.behind = ends
        return _Edges(Section(section_begin.lstrip(), section_end.rstrip()), begin, end, between, ends)

    def _check_marker(self, begin: str) -> None:
        first = (*pieces(begin), "")[0]
        if first and weak(first):
            raise CannotLearn(f"the marker of its calls, {first!r}, is too ordinary: it would be found in any text")


class _HeadSpot(NamedTuple):
    start: int
    form: str
    """The text from the first hole on; holes are their names between NUL characters."""


def _counted(forms: Sequence[str]) -> str:
    """Two heads that differ in a number are a head with a counter."""
    first, second = tokens(forms[0]), tokens(forms[1])
    if len(first) != len(second):
        raise CannotLearn("the heads of two calls differ in more than their names")
    merged = []
    for one, other in zip(first, second, strict=True):
        if one == other:
            merged.append(one)
        elif _DIGITS.fullmatch(one) and _DIGITS.fullmatch(other):
            merged.append("\0index\0")
        else:
            raise CannotLearn(f"the heads of two calls differ in {one!r} and {other!r}, which is not a number")
    return "".join(merged)


def _shown(text: str) -> str:
    return text.replace("\0", "")[:60]


def _type_words(found: Mapping[str, str], mid: str) -> tuple[TypeWords, str] | None:
    """The words that name types in a tag, where values of other types have another tag than strings."""
    if all(text.startswith(mid) for text in found.values()):
        return None
    words: dict[str, str] = {}
    before = ""
    behind = ""
    for key, text in found.items():
        if text.startswith(mid):
            raise CannotLearn("the tags of parameters differ by type, but not for all types")
        start = common_start(mid, text)
        rest = tokens(mid[len(start) :])
        other = tokens(text[len(start) :])
        tail = "".join(rest[1:])
        if not rest or not "".join(other[1:]).startswith(tail) or (before and before != start):
            raise CannotLearn("the tags of parameters differ by type in more than a word")
        before, behind = start, tail
        words[key] = other[0]
        words["kalpone"] = rest[0]
    kinds = {"kbettwo": "number", "kheltet": "boolean", "kimquin": "object", "kjosext": "array"}
    named = {kind: words[key] for key, kind in kinds.items()}
    other_word = named["number"]
    if all(word == other_word for word in named.values()):
        return TypeWords(before=before, string=words["kalpone"], other=other_word), behind
    return TypeWords(before=before, string=words["kalpone"], other=other_word, **named), behind

"""What stands around an answer's own text: its header, the delimiters of reasoning and of visible text, the end of the turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from athena.errors import CannotLearn
from athena.formats.declared.description import weak
from athena.formats.machine.base import THINK
from athena.learning.literals import common_start, first_tag, tags, through_tags
from athena.learning.probes import CONTENT, REASONING, USER, ProbeCall, Render, RenderFailed, Way

_LONGEST_END = 40
"""Of what ends a turn: anything longer is the beginning of something else."""


class Frame(NamedTuple):
    """What stands around an answer's own text."""

    header: str
    """Between the question and the answer."""
    answer: tuple[str, str]
    """Around visible text; both empty as a rule."""
    thinking: tuple[str, str]
    turn_end: str
    """Behind the answer."""
    opens_thinking: bool
    """Does the prompt for an answer open the reasoning, unless somebody turns it off?"""


def answer_of(text: str) -> str:
    """The part of a rendered conversation that follows the question."""
    at = text.rfind(USER)
    if at < 0:
        raise CannotLearn("it does not write what the user said, so the answer cannot be found in what it renders")
    return text[at + len(USER) :]


def find_frame(render: Render, way: Way, calls: Sequence[ProbeCall]) -> Frame:
    plain = answer_of(render(way.conversation(content=CONTENT)))
    if CONTENT not in plain:
        raise CannotLearn("it does not write what an answer says")
    before, _, after = plain.partition(CONTENT)
    prompt = answer_of(render(way.conversation(assistant=False, generate=True)))
    header = common_start(before, prompt)
    if prompt == answer_of(render(way.conversation(assistant=False))):
        # It has no prompt for an answer: what answers with and without calls begin with is as good.
        header = common_start(before, answer_of(render(way.conversation(calls))))
    thinking, answer_begin = _thinking(render, way, calls, header, prompt)
    if thinking[0] and thinking[0] in header:
        # Answers without reasoning begin with an empty one.
        header = header[: header.rfind(thinking[0])]
    own = _without_thinking(before.removeprefix(header), thinking)
    between = (thinking[1] + answer_begin).strip()
    if own and between.endswith(own) and tags(between.removesuffix(own)):
        # What stands before the visible part is the end of reasoning, however many tags that has.
        thinking, answer_begin = (thinking[0], between.removesuffix(own).strip()), own
    answer_begin = answer_begin or own
    answer_begin = answer_begin if tags(answer_begin) else ""
    answer_end = through_tags(after, len(tags(answer_begin)))
    of_user = (*tags(header), "")[0]
    if of_user and of_user in answer_end and not answer_end.startswith(of_user):
        # What ends the user's turn ends this one too.
        answer_end = answer_end[: answer_end.index(of_user)]
    if not tags(answer_end):
        answer_begin = answer_end = ""
    turn_end = after.removeprefix(answer_end)
    return Frame(header, (answer_begin.strip(), answer_end.strip()), thinking, turn_end, opens_thinking(render, way, thinking))


def opens_thinking(render: Render, way: Way, thinking: tuple[str, str]) -> bool:
    """Does the prompt end with the delimiter that opens reasoning, where nothing says whether to think?"""
    variables = way.conversation(assistant=False, generate=True)
    del variables["enable_thinking"]
    try:
        prompt = answer_of(render(variables)).rstrip()
    except RenderFailed:
        return False
    return any(begin and prompt.endswith(begin) for begin in (thinking[0], THINK[0][0]))


def _thinking(render: Render, way: Way, calls: Sequence[ProbeCall], header: str, prompt: str) -> tuple[tuple[str, str], str]:
    """The delimiters of reasoning, and what stands between them and visible text."""
    opened = prompt.removeprefix(header).strip()
    for beside in ((), calls):
        for content in (CONTENT, None):
            try:
                text = answer_of(render(way.conversation(beside, content=content, reasoning=REASONING)))
            except RenderFailed:
                continue
            if REASONING not in text:
                continue
            before, _, after = text.partition(REASONING)
            places = [after.find(word) for word in (CONTENT, *(call.name for call in calls))]
            behind = after[: min((at for at in places if at >= 0), default=len(after))]
            begin = _mirrored(before, behind) or before.removeprefix(common_start(before, header)).strip() or opened
            end = through_tags(behind, max(1, len(tags(begin))))
            if begin and tags(end):
                rest = behind.removeprefix(end).strip() if after.startswith(behind + CONTENT) else ""
                return (begin, end.strip()), rest
    return ("", ""), ""


_MIRRORS = (
    ("<", "</"),
    ("[", "[/"),
    ("open", "close"),
    ("begin", "end"),
    ("start", "end"),
    ("START", "END"),
    ("prefix", "suffix"),
)


def _mirrored(before: str, behind: str) -> str:
    """The end of `before` that the beginning of `behind` closes by its words; empty when none does."""
    found = list(re.finditer(r"<[^<>\n]{1,80}>|\[/?[A-Z][A-Z_ ]*\]", before.rstrip()))
    for count in range(1, 4):
        if len(found) < count:
            break
        opening = before.rstrip()[found[-count].start() :]
        for open_word, close_word in _MIRRORS:
            if open_word in opening and behind.lstrip().startswith(opening.replace(open_word, close_word, 1)):
                return opening
    return ""


def _without_thinking(text: str, thinking: tuple[str, str]) -> str:
    for delimiter in (*thinking, "<think>", "</think>"):
        if delimiter:
            text = text.replace(delimiter, "")
    return text.strip()


def own_part(text: str, frame: Frame) -> str:
    """The answer without what the prompt ends with, without empty reasoning, and without an empty visible part."""
    text = text[len(common_start(text, frame.header)) :]
    begin, end = frame.thinking
    for pair in ((begin, end), ("<think>", "</think>"), frame.answer):
        if not pair[0]:
            continue
        stripped = text.lstrip()
        empty = stripped.removeprefix(pair[0]).lstrip()
        if empty.startswith(pair[1]) and stripped.startswith(pair):
            text = empty.removeprefix(pair[1])
    return text


def turn_ends_of(frame: Frame, behind: str) -> tuple[str, ...]:
    found = []
    for text in (frame.turn_end, behind):
        end = first_tag(text).strip() if tags(text) else text.strip()
        if end and len(end) <= _LONGEST_END and not weak(end):
            found.append(end)
    return tuple(dict.fromkeys(one for one in found if one and one not in frame.answer))

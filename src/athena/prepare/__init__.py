"""A neutral request made fit for one target, before that target's dialect writes it down.

Each step is a small pure function over the request; this file is their order. What a step changes loses its raw JSON, what it
leaves alone keeps it, so a request that fits already goes to its own dialect untouched. `restore` undoes on the answer what
was done here to names, tools and stop sequences.
"""

from __future__ import annotations

from typing import NoReturn

import msgspec

from athena.calls.ids import any_id, fit_history_ids, id_fits, unique_history_ids
from athena.calls.names import OPENAI_NAMES, NameMap, fitted_names, rename
from athena.calls.pairing import Pairing, pair_results
from athena.calls.survey import BLANK, BROKEN, FOREIGN, IMAGES, PHASES, SYSTEM, TOLD, KnownFacts, Survey, is_orderly, survey
from athena.dialects.base import Dialect, EncodeTarget
from athena.errors import InvalidRequest, UnsupportedFeature
from athena.model.parts import Foreign
from athena.model.profile import Profile
from athena.model.request import Loss, Request
from athena.opaque import Envelope, OpaqueStore
from athena.prepare.broken_calls import mend_broken_calls
from athena.prepare.controls import fit_controls
from athena.prepare.refused import without_refused
from athena.prepare.state import fit_state
from athena.prepare.strangers import leave_strangers
from athena.prepare.system import fit_system
from athena.prepare.tools import CustomTools, emulate_custom_tools, fit_choice
from athena.prompted.options import PromptedOptions
from athena.prompted.render import Rendered, render_request

__all__ = ["Prepared", "prepare"]


class Prepared(msgspec.Struct, frozen=True):
    """The request for the target, and what the answer needs to be read back in the client's terms."""

    request: Request
    names: NameMap
    custom: CustomTools
    stops: tuple[str, ...]
    """Stop sequences the target does not take: matched on the answer."""
    losses: tuple[Loss, ...]
    rendered: Rendered | None = None
    """Prompted tools: how the answer's text is to be read."""


# Settings and parts that live at one provider: without them the answer would be to another question.
_BOUND_SETTINGS = ("background", "prompt", "conversation", "container", "cachedContent")
_BOUND_PARTS = ("compaction",)
_PORTABLE_INCLUDES = ("reasoning.encrypted_content", "message.output_text.logprobs")
"""What a client may ask to be included that has nothing to do with one provider: reasoning state travels sealed."""


def _refuse_bound_features(request: Request, looked: Survey) -> None:
    if request.previous_id:
        raise UnsupportedFeature(
            "previous_response_id: this upstream keeps no conversations; send the whole history as input",
            path="previous_response_id",
        )
    if request.server:
        for name in _BOUND_SETTINGS:
            if request.server.get(name):
                raise UnsupportedFeature(f"{name}: this upstream has no such thing", path=name)
    if looked.kinds & FOREIGN:
        _refuse_bound_parts(request)
    if request.max_output == 0:
        raise UnsupportedFeature("max_tokens: 0 only warms a prompt cache, which this upstream cannot do", path="max_tokens")


def _refuse_bound_parts(request: Request) -> None:
    for position, turn in enumerate(request.turns):
        for part in turn.parts:
            if isinstance(part, Foreign) and part.kind.startswith(_BOUND_PARTS):
                asked = part.kind == "compaction_trigger"
                why = "this upstream compacts no history" if asked else "only its maker can read a compacted history"
                raise UnsupportedFeature(f"turns[{position}]: {why}", path=f"turns[{position}]")


def _refuse_nothing(losses: list[Loss]) -> NoReturn:
    """A conversation of which nothing can be told abroad, such as one reference to what only its provider keeps. The model
    would be asked nothing, and its client would take the answer for one to its own question.
    """
    lost = next((loss for loss in losses if loss.path.startswith("turns[")), None)
    path = "turns" if lost is None else lost.path
    why = "" if lost is None else f"{lost.reason}; "
    raise InvalidRequest(f"{path}: {why}nothing of this conversation can be sent to this upstream", path=path)


def _refuse_threads(request: Request) -> None:
    """A thread is a conversation that Anthropic keeps. With this very refusal its SDKs send the whole history by themselves."""
    if request.server and request.server.get("thread"):
        raise UnsupportedFeature(
            "thread: this upstream keeps no conversations; send the whole history without thread",
            path="thread",
            code="thread_unsupported_request",
        )


def _unread(request: Request, target: EncodeTarget) -> list[Loss]:
    if request.unread and target.strict:
        raise UnsupportedFeature(f"{request.unread[0]}: unknown to this upstream", path=request.unread[0])
    return [Loss(path, "unknown to this upstream") for path in request.unread]


def _labels(request: Request, profile: Profile) -> list[Loss]:
    """Settings of the client's dialect that mean nothing to the answer of another."""
    losses: list[Loss] = []
    if request.cache.options is not None:
        losses.append(Loss("prompt_cache_options", "settings of another dialect's cache", minor=True))
    if request.include:
        losses += [
            Loss("include", f"{entry} belongs to another provider's services", minor=True)
            for entry in request.include
            if entry not in _PORTABLE_INCLUDES
        ]
    if request.store and not profile.store:
        losses.append(Loss("store", "nothing is stored at this upstream", minor=True))
    return losses


def _has_state(request: Request) -> bool:
    """Does the provider hold the beginning of this conversation, and with it the calls that these results answer?"""
    return request.previous_id is not None or bool(request.server and request.server.get("conversation"))


def _holds_tools(request: Request) -> bool:
    """May the provider hold tools that this request does not declare: in a thread, a stored prompt, a conversation?"""
    return bool(request.server and any(request.server.get(name) for name in ("thread", "prompt", "conversation")))


def _phases(request: Request) -> list[Loss]:
    return [
        Loss(f"turns[{position}].phase", "only its own dialect has phases of a message", minor=True)
        for position, turn in enumerate(request.turns)
        if turn.phase is not None
    ]


def _abroad(request: Request, looked: Survey, target: EncodeTarget, losses: list[Loss]) -> Request:
    """The request without what means nothing to another dialect. Raises where it would then be another question."""
    _refuse_bound_features(request, looked)
    if request.unread:
        losses += _unread(request, target)
    request = leave_strangers(request, looked, target, losses)
    left = looked if looked.turns is request.turns else survey(request.turns)
    if not left.kinds & TOLD and not request.system:
        _refuse_nothing(losses)
    losses += _labels(request, target.profile)
    if left.kinds & PHASES:
        losses += _phases(request)
    return request


_FITTED = BROKEN | IMAGES | BLANK


def _fitted_turns(looked: Survey, profile: Profile, losses: list[Loss], *, same: bool, known: KnownFacts | None) -> Survey:
    """The history with broken calls mended and without what the target refuses."""
    if looked.kinds & BROKEN and not (same and profile.clean):
        looked = survey(mend_broken_calls(looked.turns, losses), known)
    if looked.kinds & ((0 if profile.images else IMAGES) | (0 if profile.empty_content else BLANK)):
        looked = survey(without_refused(looked.turns, profile, losses), known)
    return looked


def _ordered(
    looked: Survey,
    request: Request,
    profile: Profile,
    pairing: Pairing,
    losses: list[Loss],
    *,
    foreign_or_taught: bool,
    known: KnownFacts | None,
) -> Survey:
    """A history that is not in order, with ids that differ and a result for every call."""
    turns = looked.turns
    if foreign_or_taught or profile.ids == "kimi":
        # Kimi's ids are numbers of calls: two calls that share an id would share a number.
        turns = unique_history_ids(turns)
    if foreign_or_taught:
        # Whoever speaks the client's own dialect judges its history itself. It may hold the other half of a pair (a stored
        # response, a thread), and calls may be pending by design.
        turns, repairs = pair_results(turns, pairing if not _has_state(request) else "repair")
        losses.extend(repairs)
    return looked if turns is looked.turns else survey(turns, known)


def prepare(
    request: Request,
    target: EncodeTarget,
    client_dialect: Dialect,
    upstream_dialect: Dialect,
    *,
    envelope: Envelope | None = None,
    store: OpaqueStore | None = None,
    tenant: str = "",
    pairing: Pairing = "strict",
    prompted: PromptedOptions | None = None,
    known: KnownFacts | None = None,
) -> Prepared:
    """Fit a client's request to a target of another or the same dialect; `prompted`: its model has no tools.

    `known` gives what turns hold, where somebody remembers that.
    """
    profile = target.profile
    same = client_dialect.name == upstream_dialect.name
    foreign_or_taught = not same or prompted is not None
    # Made anew wherever a step has changed the history.
    looked = survey(request.turns, known)
    if foreign_or_taught:
        request = client_dialect.portable(request, looked.kinds)
        if looked.turns is not request.turns:
            looked = survey(request.turns, known)
    losses: list[Loss] = list(request.losses)
    if request.server and profile.family != "anthropic":
        # A server that only imitates the dialect would pass over the field and answer without the conversation.
        _refuse_threads(request)
    if not same:
        request = _abroad(request, looked, target, losses)
        if looked.turns is not request.turns:
            looked = survey(request.turns, known)
    orderly = is_orderly(looked, id_fits(profile.ids) if prompted is None else any_id)
    if not orderly:
        looked = _ordered(looked, request, profile, pairing, losses, foreign_or_taught=foreign_or_taught, known=known)
    if looked.kinds & _FITTED:
        looked = _fitted_turns(looked, profile, losses, same=same, known=known)
    turns = fit_state(looked, profile, same=same, envelope=envelope, store=store, tenant=tenant, losses=losses)
    if turns is not request.turns:
        request = msgspec.structs.replace(request, turns=turns)
        if looked.turns is not turns:
            looked = survey(turns, known)
    if looked.kinds & SYSTEM or (request.system and not profile.system_messages):
        inline = upstream_dialect.system_turns
        request = fit_system(request, looked, profile, inline=inline, same=same, losses=losses)
        if looked.turns is not request.turns:
            looked = survey(request.turns, known)
    request, custom = emulate_custom_tools(request, looked, profile, losses, always=prompted is not None)
    # Only one dialect has namespaces, so a request that has them keeps them in its own dialect. A prompt has none.
    rule = OPENAI_NAMES if prompted is not None else upstream_dialect.names
    if looked.turns is not request.turns:
        looked = survey(request.turns, known)
    names = fitted_names(request, rule, flat=foreign_or_taught, calls=looked.calls())
    request = rename(request, names)
    rendered = None
    if prompted is not None:
        rendered = render_request(request, prompted, model=target.model)
        request = rendered.request
        losses.extend(rendered.losses)
    elif not orderly:
        # Behind the names: some ids are made of them.
        request = msgspec.structs.replace(request, turns=fit_history_ids(request.turns, profile.ids))
    if request.tool_choice is not None:
        request = fit_choice(request, target, losses, tools_held=not foreign_or_taught and _holds_tools(request))
    request, stops = fit_controls(request, target, same=same, losses=losses)
    return Prepared(
        request=request,
        names=names,
        custom=custom.renamed(names),
        stops=stops,
        losses=tuple(losses),
        rendered=rendered,
    )

"""Conversations of Responses that are too long for their model: compacted where the client asked for it, else cut."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from athena.serving.holding import RequestMemory
from athena.serving.record import RequestRecord
from athena.serving.tokens import TokenCounter
from athena.shells.gateway.answers import OpenAnswers
from athena.shells.gateway.collecting import CollectingClient
from athena.shells.gateway.model_lists import ModelLists
from athena.shells.gateway.reading import ReadRequest
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.responses_state import ResponsePlan
from athena.state.compaction import compaction_item, with_summary
from athena.state.ids import item_id
from athena.state.resolve import input_items, truncated
from athena.state.values import ResponseItem
from athena.wire.surrogates import encode_json

LOG = logging.getLogger("athena")
_ANSWER_SHARE = 8
"""Of a model's window, what is left for its answer where the client names no length: one part of so many."""


class Shortening:
    """Makes requests fit. A compaction is a request of its own, which the model answers first."""

    def __init__(self, answers: OpenAnswers, tokens: TokenCounter, lists: ModelLists) -> None:
        self._answers = answers
        self._tokens = tokens
        self._lists = lists

    async def shortened(
        self, read: ReadRequest, received: ReceivedRequest, memory: RequestMemory, headers: Mapping[str, str] | None = None
    ) -> ReadRequest:
        """The request as it is to be served: the same where it fits, or where its client did not ask for this. `headers` are
        the client's where they are not to be had from it any more."""
        plan = read.plan
        if plan is None or not (plan.asked.truncates or plan.asked.threshold is not None):
            return read
        request = plan.request
        assert request is not None
        model = received.configured.targets(request.model)[0].model
        asked = plan.asked
        if asked.threshold is not None and not plan.compacts and self._tokens.count(request, model) > asked.threshold:
            await self._compact_first(plan, received, memory, received.client.headers if headers is None else headers)
        elif asked.truncates and not plan.compacts:
            window = (await self._lists.one(request.model, received.key)).models[0].max_input
            if window is not None:
                room = window - (request.max_output or window // _ANSWER_SHARE)

                def fits(items: list[ResponseItem]) -> bool:
                    return self._tokens.count(plan.decode({**plan.sent, "input": items}), model) <= room

                items = input_items(plan.sent)
                shorter = truncated(items, fits)
                if shorter is not items:
                    plan.send_instead(shorter)
        assert plan.request is not None
        return ReadRequest(plan.request, encode_json(plan.sent) if read.body else b"", plan, read.recall)

    async def _compact_first(
        self, plan: ResponsePlan, received: ReceivedRequest, memory: RequestMemory, headers: Mapping[str, str]
    ) -> None:
        """Have the model write a summary; where it does not, the conversation is sent as it is."""
        configured, record = received.configured, received.record
        assert configured.responses is not None
        summary = configured.responses.compaction_of(plan)
        assert summary.request is not None
        collected = CollectingClient(dict(headers))
        aside = RequestRecord(request_id=f"{record.request_id}-compaction", dialect=record.dialect, path=record.path)
        aside.key, aside.origin = record.key, record.origin
        sent = encode_json(summary.sent) if configured.shared.wants_bodies else b""
        await self._answers.serve(ReadRequest(summary.request, sent), configured, memory, aside, collected, key=received.key)
        sealed = collected.compaction()
        if sealed is None:
            LOG.warning("request %s: the conversation could not be compacted and is sent whole", record.request_id)
            return
        items = input_items(plan.sent)
        item = compaction_item(item_id("cmp_", plan.id, "o", 0), configured.responses.covering(plan.owner, sealed))
        told = configured.responses.opened(plan.owner, {"input": [item]})["input"]
        plan.send_instead(with_summary(items, min(len(plan.added), len(items)), told), (item,))

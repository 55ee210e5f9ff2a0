"""Endpoints of the dialects that ask no model for an answer: lists of models, counts of tokens, preparing a response."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec

from athena.calls.names import check_model_name, check_names
from athena.dialects.base import Dialect, EncodeContext
from athena.model.events import Done, Event, Finish, Start, Usage
from athena.model.request import Request
from athena.serving.endpoints import Endpoint
from athena.serving.holding import RequestMemory
from athena.shells.gateway.answers import OpenAnswers
from athena.shells.gateway.incoming import read_request
from athena.shells.gateway.native_state import refuse_references
from athena.shells.gateway.passing import PassThrough
from athena.shells.gateway.planning import Native, load_history, planned
from athena.shells.gateway.reading import RequestReader, forget
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.replies import reply_json
from athena.shells.gateway.resources import Resources
from athena.shells.gateway.responses_state import RequestDecode, ResponsePlan
from athena.state.asked import continues
from athena.wire.recall import Recall
from athena.wire.response_json import response_json

_COUNT = Endpoint("pass", "openai_responses", upstream_path="/v1/responses/input_tokens")


class ModelEndpoints:
    """Answers such requests in the client's dialect."""

    def __init__(self, resources: Resources, reader: RequestReader, answers: OpenAnswers) -> None:
        self._resources = resources
        self._reader = reader
        self._answers = answers

    async def models(self, received: ReceivedRequest) -> None:
        """The models that can be asked for, or one of them."""
        endpoint, dialect, lists = received.endpoint, received.dialect, self._resources.lists
        if endpoint.action == "model":
            check_model_name(endpoint.model or "")
            listing = await lists.one(endpoint.model or "", received.key)
            shown = dialect.encode_models(list(listing.models))
            body: Any = next(iter(shown.get("data") or shown.get("models") or [{}]))
        else:
            listing = await lists.listing(received.key)
            body = dialect.encode_models(list(listing.models))
        received.unserved.answered(200, reply_json(received, body, 200, *listing.headers()))

    async def count(self, received: ReceivedRequest) -> None:
        """How many tokens a request would take, as far as it can be told without the model."""
        configured, dialect, unserved = received.configured, received.dialect, received.unserved
        config = configured.config
        memory = RequestMemory(self._resources.memory)
        decode = partial(_decode_count, endpoint=received.endpoint, dialect=dialect)
        try:
            keep = unserved.keep if unserved.wants_body else forget
            read = partial(_continuation, decode=decode) if dialect.name == "openai_responses" else decode
            request, _, _ = await read_request(
                received.client, config.limits, config.timeouts.client_body_s, memory, read, on_body=keep
            )
            if isinstance(request, dict):
                continued = await self._continued(received, memory, request, decode)
                if continued is None:
                    return
                request = continued
        finally:
            memory.close()
        received.record.model = request.model
        target = configured.targets(request.model)[0]
        tokens = self._resources.tokens.count(request, target.model)
        count = reply_json(received, dialect.encode_count(tokens), 200, (b"x-athena-token-count", b"estimated"))
        unserved.answered(200, count)

    async def _continued(
        self, received: ReceivedRequest, memory: RequestMemory, body: dict[str, Any], decode: RequestDecode
    ) -> Request | None:
        """A request with what it continues. None: an upstream keeps that, and has answered how many tokens it takes."""
        configured, record = received.configured, received.record
        plan = planned(
            body, configured=configured, owner=record.key, decode=decode, compaction=False, recent=None, remembered=None
        )
        if isinstance(plan, ResponsePlan):
            await load_history(plan, configured, memory, record, locks=False)
            return plan.request
        if configured.natives is None:
            refuse_references(body)  # nothing is kept here, and nobody is known to keep it
        else:
            await configured.natives.check_owner(record.key, body)
        record.model = str(body.get("model"))
        self._answers.check_room(configured.config)
        passage = PassThrough(received, self._resources, _COUNT, body)
        passage.use(configured.targets(record.model))
        await self._answers.run(passage)
        return None

    async def prepare(self, received: ReceivedRequest) -> None:
        """A request that asks nothing of a model: it is read and checked as if it did, and its response is empty."""
        record, configured = received.record, received.configured
        self._answers.check_room(configured.config)
        memory = RequestMemory(self._resources.memory)
        plan: ResponsePlan | None = None
        try:
            read = await self._reader.read(received, memory)
            assert not isinstance(read, Native), "this is no compaction"
            request, plan = read.request, read.plan
            record.model, record.stream, record.tools = request.model, True, len(request.tools)
            target = configured.targets(request.model)[0]
            if request.kept is not None:
                request = msgspec.structs.replace(request, kept=msgspec.structs.replace(request.kept, waits=False))
            record.upstream, record.upstream_model, record.upstream_dialect = target.upstream, target.model, target.dialect
            context = EncodeContext(request, seed=record.request_id, created=int(time.time()))
            events: list[Event] = [Start(model=request.model), Done(Finish(), usage=Usage())]
            answer = received.dialect.encoder(context, stream=True).feed(events)
            if plan is not None:
                response = msgspec.json.decode(answer.rstrip().rpartition(b"data: ")[2])["response"]
                keeping = plan.keep(response, response_json(response))
                if keeping is not None:
                    await keeping
        finally:
            memory.close()
            if plan is not None:
                await plan.close()
        record.status, record.outcome = 200, "ok"
        received.client.start(200, received.answer_headers, None)
        received.client.finish(answer)
        self._resources.over(record)


def _continuation(value: dict[str, Any], recall: Recall | None = None, *, decode: RequestDecode) -> Request | dict[str, Any]:
    """The body itself where it continues something, which has to be loaded before it can be read."""
    return value if continues(value) else decode(value)


def _decode_count(value: dict[str, Any], recall: Recall | None = None, *, endpoint: Endpoint, dialect: Dialect) -> Request:
    request = dialect.decode_count_request(value, model=endpoint.model)
    check_names(request)
    return request

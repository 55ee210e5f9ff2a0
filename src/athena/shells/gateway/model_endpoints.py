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
from athena.shells.gateway.planning import Native
from athena.shells.gateway.reading import RequestReader, forget
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.replies import reply_json
from athena.shells.gateway.resources import Resources
from athena.wire.recall import Recall
from athena.wire.response_json import response_json


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
            request, _, _ = await read_request(
                received.client, config.limits, config.timeouts.client_body_s, memory, decode, on_body=keep
            )
        finally:
            memory.close()
        received.record.model = request.model
        target = configured.targets(request.model)[0]
        tokens = self._resources.tokens.count(request, target.model)
        count = reply_json(received, dialect.encode_count(tokens), 200, (b"x-athena-token-count", b"estimated"))
        unserved.answered(200, count)

    async def prepare(self, received: ReceivedRequest) -> None:
        """A request that asks nothing of a model: it is read and checked as if it did, and its response is empty."""
        record, configured = received.record, received.configured
        self._answers.check_room(configured.config)
        memory = RequestMemory(self._resources.memory)
        try:
            read = await self._reader.read(received, memory)
            assert not isinstance(read, Native), "this is no compaction"
            request, plan = read.request, read.plan
            record.model, record.stream, record.tools = request.model, True, len(request.tools)
            target = configured.targets(request.model)[0]
            if request.kept is not None:
                request = msgspec.structs.replace(request, kept=msgspec.structs.replace(request.kept, waits=False))
        finally:
            memory.close()
        record.upstream, record.upstream_model, record.upstream_dialect = target.upstream, target.model, target.dialect
        context = EncodeContext(request, seed=record.request_id, created=int(time.time()))
        events: list[Event] = [Start(model=request.model), Done(Finish(), usage=Usage())]
        answer = received.dialect.encoder(context, stream=True).feed(events)
        if plan is not None:
            try:
                response = msgspec.json.decode(answer.rstrip().rpartition(b"data: ")[2])["response"]
                keeping = plan.keep(response, response_json(response))
                if keeping is not None:
                    await keeping
            finally:
                await plan.close()
        record.status, record.outcome = 200, "ok"
        received.client.start(200, received.answer_headers, None)
        received.client.finish(answer)
        self._resources.over(record)


def _decode_count(value: dict[str, Any], recall: Recall | None = None, *, endpoint: Endpoint, dialect: Dialect) -> Request:
    request = dialect.decode_count_request(value, model=endpoint.model)
    check_names(request)
    return request

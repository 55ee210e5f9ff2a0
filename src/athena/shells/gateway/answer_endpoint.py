"""The endpoints that a model answers: requests that are translated, and those that are passed through."""

from __future__ import annotations

from athena.serving.endpoints import Endpoint
from athena.serving.holding import RequestMemory
from athena.shells.gateway.answers import OpenAnswers
from athena.shells.gateway.background_jobs import BackgroundJobs
from athena.shells.gateway.passing import PassThrough, read_passage
from athena.shells.gateway.planning import Native
from athena.shells.gateway.reading import RequestReader
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.resources import Resources
from athena.shells.gateway.responses_state import ResponsePlan
from athena.shells.gateway.shortening import Shortening

_COMPACT = Endpoint("pass", "openai_responses", upstream_path="/v1/responses/compact")


class AnswerEndpoint:
    """Reads a request, makes it fit, and has it answered: now, or in the background."""

    def __init__(
        self, resources: Resources, reader: RequestReader, answers: OpenAnswers, shortening: Shortening, jobs: BackgroundJobs
    ) -> None:
        self._resources = resources
        self._reader = reader
        self._answers = answers
        self._shortening = shortening
        self._jobs = jobs

    async def answer(self, received: ReceivedRequest) -> None:
        """A request whose answer is translated."""
        configured, record = received.configured, received.record
        self._answers.check_room(configured.config)
        memory = RequestMemory(self._resources.memory)
        plan: ResponsePlan | None = None
        is_aside = False
        try:
            read = await self._reader.read(received, memory)
            if isinstance(read, Native):
                record.model = read.model
                await self._pass_on(PassThrough(received, self._resources, _COMPACT, read.body), read.model, received)
                return
            plan = read.plan
            if plan is not None:
                configured.targets(read.request.model)  # an unknown model is refused, and its request recorded as such
                received.unserved.body = b""  # it is served, and its taps have it
                if plan.asked.background:
                    is_aside = True
                    await self._jobs.begin(read, received, memory)
                    return
                read = await self._shortening.shortened(read, received, memory)
            answer = self._answers.serve(
                read, configured, memory, record, received.client, key=received.key, array=received.endpoint.array
            )
            received.unserved.body = b""
            await answer
        finally:
            if not is_aside:
                memory.close()
                if plan is not None:
                    await plan.close()

    async def pass_through(self, received: ReceivedRequest) -> None:
        """A request whose answer is passed on as it comes."""
        self._answers.check_room(received.configured.config)
        memory = RequestMemory(self._resources.memory)
        try:
            passage, model = await read_passage(received, self._resources, memory)
            await self._pass_on(passage, model, received)
        finally:
            memory.close()

    async def _pass_on(self, passage: PassThrough, model: str, received: ReceivedRequest) -> None:
        passage.use(received.configured.targets(model))
        await self._answers.run(passage)

"""The responses that this process makes in the background: begun, followed, cancelled."""

from __future__ import annotations

import asyncio
import time

import msgspec

from athena.serving.holding import RequestMemory
from athena.shells.gateway.answers import OpenAnswers
from athena.shells.gateway.background import QUEUED_S, Job, follow
from athena.shells.gateway.client import Client
from athena.shells.gateway.pieces import write_pieces
from athena.shells.gateway.reading import ReadRequest
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.replies import reply_json
from athena.shells.gateway.shortening import Shortening
from athena.state.stored import response_object
from athena.wire.surrogates import encode_json


class BackgroundJobs:
    """One for each gateway. A job goes on when the client that began it has left."""

    def __init__(self, answers: OpenAnswers, shortening: Shortening) -> None:
        self._answers = answers
        self._shortening = shortening
        self._jobs: dict[str, Job] = {}
        """By the response's id."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    async def begin(self, read: ReadRequest, received: ReceivedRequest, memory: RequestMemory) -> None:
        """Make the response in a task of its own, and answer that it is queued, or follow it.

        Memory and plan are closed when the response is made."""
        configured, plan = received.configured, read.plan
        assert plan is not None
        assert configured.responses is not None
        store, headers = configured.responses.store, dict(received.client.headers)
        job = Job(plan, store)
        try:
            await store.put_response(job.queued, events=job.events, lease=time.time() + QUEUED_S)
        except BaseException:
            memory.close()
            await plan.close()
            raise

        async def serve(to: Client) -> None:
            fitting = await self._shortening.shortened(read, received, memory, headers)
            if job.is_cancelled:
                return  # while the conversation was compacted
            # It is recorded as what it is served as.
            body = encode_json({**plan.sent, "stream": True}) if read.body else b""
            streamed = ReadRequest(msgspec.structs.replace(fitting.request, stream=True), body, plan)
            await self._answers.serve(streamed, configured, memory, received.record, to, key=received.key, headers=headers)

        async def run() -> None:
            try:
                await job.run(serve)
            finally:
                self._jobs.pop(plan.id, None)
                memory.close()
                await plan.close()

        task = asyncio.create_task(run())
        self._jobs[plan.id] = job
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if read.request.stream:
            await self.follow(received, plan.owner, plan.id, -1)
        else:
            reply_json(received, response_object(job.queued))

    async def follow(self, received: ReceivedRequest, owner: str, name: str, after: int) -> None:
        """The stream of a response that is made in the background, from a certain event on."""
        configured, client = received.configured, received.client
        assert configured.responses is not None
        timeouts = configured.config.timeouts
        headers = [*received.answer_headers, (b"content-type", b"text/event-stream; charset=utf-8")]
        client.start(200, [*headers, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")], None)
        frames = follow(configured.responses.store, self._jobs.get(name), owner, name, after, timeouts.keep_alive_s)
        try:
            await write_pieces(frames, client, timeouts.client_write_s)
        finally:
            await frames.aclose()

    def cancel(self, name: str) -> None:
        """Stop making a response, where it is made here."""
        if name in self._jobs:
            self._jobs[name].cancel()

    async def close(self) -> None:
        """Wait until all are over, but not for a store that is away."""
        for job in self._jobs.values():
            job.is_hurried = True
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

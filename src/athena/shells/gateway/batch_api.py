"""The doors of batches: Message Batches of Anthropic's API, Batches and Files of OpenAI's."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from athena.bulk import anthropic, openai
from athena.bulk.multipart import Upload
from athena.bulk.values import BatchResult, BatchState, File, RequestBatch, RequestState, StateCounts
from athena.errors import AthenaError, ClientError, InvalidRequest
from athena.serving.endpoints import Endpoint
from athena.shells.config import BatchSettings
from athena.shells.store.batches import BatchStore

_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")
"""Headers of a submission that go for each of its requests."""
_ID_BYTES = 20
_PURPOSES = ("batch", "user_data", "assistants", "fine-tune", "vision", "evals")


def no_batches() -> ClientError:
    """The answer where batches are switched off, or nothing is kept."""
    return ClientError(
        "this gateway takes no batches (batches.enabled or store is false in its configuration)",
        kind="not_found",
        code="unsupported_endpoint",
        status=404,
    )


class Lines:
    """An answer that is written as it is read from the store."""

    def __init__(self, kind: str, pieces: AsyncIterator[bytes]) -> None:
        self.kind = kind
        self.pieces = pieces


class BatchApi:
    """The doors of batches, for one owner at a time."""

    def __init__(self, batches: BatchStore, settings: BatchSettings, max_bytes: int) -> None:
        self._batches = batches
        self._settings = settings
        self._max_bytes = max_bytes

    async def answer(
        self,
        endpoint: Endpoint,
        method: str,
        query: str,
        body: dict[str, Any] | Upload,
        owner: str,
        headers: Mapping[str, str],
        base_url: str,
    ) -> dict[str, Any] | Lines:
        """The answer to a request. Raises in the words of its API."""
        asked = dict(parse_qsl(query, max_num_fields=50))
        name = endpoint.names[0] if endpoint.names else ""
        match endpoint.stored, method:
            case "message_batches", "POST":
                assert isinstance(body, dict)
                return await self._submit_messages(owner, body, headers, base_url)
            case "message_batches", _:
                return await self._list_messages(owner, asked, base_url)
            case "message_batch", "GET":
                return anthropic.batch_object(*await self._message_batch(owner, name), base_url)
            case "message_batch", _:
                return await self._delete_messages(owner, name)
            case "message_results", _:
                return await self._message_results(owner, name)
            case "message_cancel", _:
                await self._message_batch(owner, name)
                await self._batches.cancel(owner, name)
                return anthropic.batch_object(*await self._message_batch(owner, name), base_url)
            case "batches", "POST":
                assert isinstance(body, dict)
                return await self._submit(owner, body, headers)
            case "batches", _:
                return await self._list(owner, asked)
            case "batch", _:
                return openai.batch_object(*await self._batch(owner, name))
            case "batch_cancel", _:
                await self._batch(owner, name)
                await self._batches.cancel(owner, name)
                return openai.batch_object(*await self._batch(owner, name))
            case "files", "POST":
                assert isinstance(body, Upload)
                return await self._upload(owner, body)
            case "files", _:
                return await self._list_files(owner, asked)
            case "file", "GET":
                return openai.file_object(await self._file(owner, name))
            case "file", _:
                if not await self._batches.delete_file(owner, name):
                    raise openai.file_not_found(name)
                return openai.deleted_file(name)
            case _:
                return await self._content(owner, name)

    # -- Anthropic -----------------------------------------------------------------------------------------------------------

    async def _submit_messages(
        self, owner: str, body: dict[str, Any], headers: Mapping[str, str], base_url: str
    ) -> dict[str, Any]:
        requests = anthropic.read_batch(body, self._settings.requests)
        await self._check_room(sum(len(request.body) for request in requests))
        batch = self._new(anthropic.PREFIX, owner, headers, "/v1/messages")
        await self._batches.put(batch, requests)
        return anthropic.batch_object(batch, {RequestState.WAITING: len(requests)}, base_url)

    async def _message_batch(self, owner: str, name: str) -> tuple[RequestBatch, StateCounts]:
        found = await self._batches.get(owner, name)
        if found is None or found[0].dialect != "anthropic_messages":
            raise anthropic.not_found(name)
        return found

    async def _list_messages(self, owner: str, asked: Mapping[str, str], base_url: str) -> dict[str, Any]:
        limit = _limit(asked, 20, 1000)
        for mark in ("after_id", "before_id"):
            await self._check_mark(owner, asked, mark)
        found = await self._batches.page(
            owner, "anthropic_messages", after=asked.get("after_id"), before=asked.get("before_id"), limit=limit + 1
        )
        has_more = len(found) > limit
        found = found[-limit:] if asked.get("before_id") else found[:limit]
        return anthropic.list_object([anthropic.batch_object(*each, base_url) for each in found], has_more=has_more)

    async def _delete_messages(self, owner: str, name: str) -> dict[str, Any]:
        batch, _ = await self._message_batch(owner, name)
        if batch.state is not BatchState.ENDED:
            raise anthropic.not_ended(name)
        await self._batches.delete(owner, name)
        return anthropic.deleted_object(name)

    async def _message_results(self, owner: str, name: str) -> Lines:
        batch, _ = await self._message_batch(owner, name)
        if batch.state is not BatchState.ENDED:
            raise anthropic.not_ended(name)

        async def lines() -> AsyncIterator[bytes]:
            async for page in self._pages(name):
                yield b"".join(map(anthropic.result_line, page))

        return Lines("application/x-jsonl", lines())

    # -- OpenAI --------------------------------------------------------------------------------------------------------------

    async def _submit(self, owner: str, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        asked = openai.read_batch(body)
        file = await self._batches.file(owner, asked.input_file)
        if file is None or file.purpose != "batch":
            raise InvalidRequest(
                f"No file with purpose 'batch' found with id '{asked.input_file[:200]}'.", path="input_file_id"
            )
        content = b"".join([part async for part in self._parts(file.id)])
        requests, problems = openai.read_lines(content, asked.endpoint, self._settings.requests)
        batch = self._new(openai.PREFIX, owner, headers, asked.endpoint, asked)
        if problems:
            failed = msgspec.structs.replace(batch, problems=tuple(problems), state=BatchState.ENDED, ended=batch.created)
            await self._batches.put(failed, ())
            return openai.batch_object(failed, {})
        await self._check_room(len(content))
        await self._batches.put(batch, requests)
        return openai.batch_object(batch, {RequestState.WAITING: len(requests)})

    async def _batch(self, owner: str, name: str) -> tuple[RequestBatch, StateCounts]:
        found = await self._batches.get(owner, name)
        if found is None or found[0].dialect != "openai_chat":
            raise openai.batch_not_found(name)
        return found

    async def _list(self, owner: str, asked: Mapping[str, str]) -> dict[str, Any]:
        limit = _limit(asked, 20, 100)
        await self._check_mark(owner, asked, "after")
        found = await self._batches.page(owner, "openai_chat", after=asked.get("after"), before=None, limit=limit + 1)
        return openai.list_object([openai.batch_object(*each) for each in found[:limit]], has_more=len(found) > limit)

    async def _upload(self, owner: str, upload: Upload) -> dict[str, Any]:
        purpose = upload.fields.get("purpose", "")
        if purpose not in _PURPOSES:
            raise InvalidRequest("Invalid value for 'purpose'. Files are kept here for batches.", path="purpose")
        await self._check_room(len(upload.content))
        name = openai.FILE_PREFIX + os.urandom(_ID_BYTES).hex()
        file = File(id=name, owner=owner, created=time.time(), name=upload.name, purpose=purpose, size=len(upload.content))
        await self._batches.put_file(file, upload.content)
        return openai.file_object(file)

    async def _file(self, owner: str, name: str) -> File:
        file = await self._batches.file(owner, name)
        if file is None:
            raise openai.file_not_found(name)
        return file

    async def _list_files(self, owner: str, asked: Mapping[str, str]) -> dict[str, Any]:
        limit = _limit(asked, 100, 1000)
        after = asked.get("after")
        if after is not None and await self._batches.file(owner, after) is None:
            raise _no_mark("after", after)
        found = await self._batches.files(owner, after=after, limit=limit + 1, purpose=asked.get("purpose"))
        return openai.list_object([openai.file_object(file) for file in found[:limit]], has_more=len(found) > limit)

    async def _content(self, owner: str, name: str) -> Lines:
        file = await self._file(owner, name)
        if not file.batch:
            return Lines("application/octet-stream", self._parts(name))

        async def lines() -> AsyncIterator[bytes]:
            async for each in self._chosen(file.batch, failed=file.failed):
                yield openai.result_line(each)

        return Lines("application/octet-stream", lines())

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _new(
        self, prefix: str, owner: str, headers: Mapping[str, str], endpoint: str, asked: openai.BatchAsked | None = None
    ) -> RequestBatch:
        now = time.time()
        return RequestBatch(
            id=prefix + os.urandom(_ID_BYTES).hex(),
            owner=owner,
            dialect="anthropic_messages" if asked is None else "openai_chat",
            endpoint=endpoint,
            created=now,
            expires=now + self._settings.expires_s,
            input_file=asked.input_file if asked is not None else "",
            headers={each: headers[each] for each in _HEADERS if each in headers},
            metadata=asked.metadata if asked is not None else {},
        )

    async def _check_mark(self, owner: str, asked: Mapping[str, str], field: str) -> None:
        """Raises where the batch that a page of a list begins with is not there: the list would seem to end."""
        mark = asked.get(field)
        if mark is not None and await self._batches.get(owner, mark) is None:
            raise _no_mark(field, mark)

    async def _check_room(self, size: int) -> None:
        if await self._batches.size() + size > self._max_bytes:
            raise AthenaError(
                "the store holds as many batches as it may (store.max_mb); delete some, or ask again later",
                kind="overloaded",
                code="store_full",
            )

    async def _pages(self, batch: str) -> AsyncIterator[list[BatchResult]]:
        after = -1
        while page := await self._batches.results(batch, after):
            yield page
            after = page[-1].position

    async def _chosen(self, batch: str, *, failed: bool) -> AsyncIterator[BatchResult]:
        async for page in self._pages(batch):
            for each in page:
                if openai.is_in(each, failed=failed):
                    yield each

    async def _parts(self, name: str) -> AsyncIterator[bytes]:
        position = 0
        while (part := await self._batches.part(name, position)) is not None:
            yield part
            position += 1


def _no_mark(field: str, name: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: nothing with id '{name[:200]}'", path=field)


def _limit(asked: Mapping[str, str], usual: int, most: int) -> int:
    text = asked.get("limit", str(usual))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= most:
        raise InvalidRequest(f"limit: must be a number from 1 to {most}", path="limit")
    return int(text)

"""`/inspect`: the inspector's page, as the gateway serves it. Its data is `athena.shells.gateway.inspect_api`'s."""

from __future__ import annotations

from athena.errors import ClientError
from athena.serving.endpoints import unknown_path
from athena.shells.gateway.client import Client
from athena.shells.gateway.inspect_api import InspectApi
from athena.shells.inspector import PATH, page_answer


def is_page(path: str) -> bool:
    """Does the path belong to the page?"""
    return path == PATH or path.startswith(PATH + "/")


def serve_page(client: Client, inspector: InspectApi | None) -> None:
    """Answer a request for the page or one of its files. Raises where there is none, or nothing that it could show."""
    if inspector is None:
        raise ClientError(
            "this gateway records nothing, so there is nothing to inspect; `record: {mode: memory}` changes that",
            kind="not_found",
            code="unknown_path",
            status=404,
        )
    if client.method not in ("GET", "HEAD"):
        raise ClientError(f"{client.method} is not allowed here; use GET", code="method_not_allowed", status=405)
    answer = page_answer(client.path, may_enter=inspector.may_enter(client.headers, client.query))
    if answer is None:
        raise unknown_path(client.path)
    client.start(answer.status, answer.headers, len(answer.body))
    client.finish(b"" if client.method == "HEAD" else answer.body)

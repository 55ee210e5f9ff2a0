"""The errors of stored conversations, in OpenAI's words: clients and SDKs look for these statuses and codes."""

from __future__ import annotations

from athena.errors import AthenaError, ClientError, InvalidRequest


def previous_not_found(name: str) -> ClientError:
    """The response to continue is not there, is another's, or was deleted: all three look the same."""
    return ClientError(
        f"Previous response with id '{name[:200]}' not found.",
        kind="invalid",
        code="previous_response_not_found",
        status=400,
        path="previous_response_id",
    )


def response_not_found(name: str) -> ClientError:
    return ClientError(f"Response with id '{name[:200]}' not found.", kind="not_found", code="response_not_found", status=404)


def conversation_not_found(name: str) -> ClientError:
    return ClientError(
        f"Conversation with id '{name[:200]}' not found.", kind="not_found", code="conversation_not_found", status=404
    )


def item_not_found(name: str) -> ClientError:
    """A reference, or an item asked for by its id."""
    return ClientError(
        f"Item with id '{name[:200]}' not found. Items are not persisted when `store` is set to false. Try again with `store` "
        "set to true, or remove this item from your input.",
        kind="not_found",
        code="item_not_found",
        status=404,
        path="input",
    )


def duplicate_item(name: str, path: str) -> InvalidRequest:
    """Two items of a conversation would have one id."""
    return InvalidRequest(
        f"Duplicate item found with id {name[:200]}. Remove duplicate items from your input and try again.", path=path
    )


def unreadable_compaction() -> InvalidRequest:
    """A compaction of another key or of another deployment, or one that was altered: all of them look the same."""
    return InvalidRequest(
        "The encrypted content of a compaction could not be verified: it was changed, or is none of this gateway and key.",
        path="input",
        code="invalid_encrypted_content",
    )


def conversation_locked() -> ClientError:
    return ClientError(
        "Another process is currently operating on this conversation. Please retry in a few seconds.",
        kind="conflict",
        code="conversation_locked",
        status=409,
    )


def mutually_exclusive(first: str, second: str) -> InvalidRequest:
    return InvalidRequest(
        f"Mutually exclusive parameters: '{first}' and '{second}'. Ensure you are only providing one of: "
        f"'{first}' or '{second}'.",
        code="mutually_exclusive_parameters",
    )


def unknown_call(call_id: str) -> InvalidRequest:
    """A result whose call is nowhere in the conversation."""
    return InvalidRequest(
        f"No tool call found for function call output with call_id {call_id[:200]}.", path="input", code="orphan_tool_result"
    )


def unanswered_call(call_id: str) -> InvalidRequest:
    """A call of the response before that the request gives no result for."""
    return InvalidRequest(f"No tool output found for function call {call_id[:200]}.", path="input", code="missing_tool_result")


class StoreDown(AthenaError):
    """The store of responses and conversations cannot be reached or written.

    Ask again in a moment; the operator finds the reason in the gateway's log, and `athena store check` names it.
    """

    kind = "overloaded"
    code = "store_down"


class StoreUnreadable(AthenaError):
    """What the store holds under an id cannot be read: it was encrypted with another key, or damaged."""

    kind = "server"
    code = "store_unreadable"

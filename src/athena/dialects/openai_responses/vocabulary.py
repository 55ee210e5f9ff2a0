"""Words of the Responses API that more than one module needs, as the types of the `openai` package spell them.

Wire facts: docs/reference/wire-facts.md#openai-responses.
"""

from __future__ import annotations

from typing import Any

NAME = "openai_responses"

OTHER_EVENT = "other_event"
"""`Extra` field that holds a stream event which no event of ours carries: it has no place in a whole answer."""

ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""Asks for reasoning state that a client without server-side storage can send back."""
OUTPUT_LOGPROBS = "message.output_text.logprobs"

MINIMUM_OUTPUT = 16
"""The API refuses a smaller max_output_tokens."""

CACHE_SECONDS = {"30m": 1800, "12h": 43200}

_INPUT_SIDE = frozenset({
    "agent_message", "apply_patch_call_output", "compaction_trigger", "computer_call_output", "configuration_update",
    "local_shell_call_output", "mcp_approval_response", "multi_agent_call_output", "shell_call_output",
})  # fmt: skip
_OUTPUT_SIDE = frozenset({"program_output"})
CONVERSATION_ITEMS = (_INPUT_SIDE | _OUTPUT_SIDE | {
    "additional_tools", "apply_patch_call", "code_interpreter_call", "compaction", "computer_call", "custom_tool_call",
    "custom_tool_call_output", "file_search_call", "function_call", "function_call_output", "image_generation_call",
    "local_shell_call", "mcp_approval_request", "mcp_call", "mcp_list_tools", "message", "program", "reasoning", "shell_call",
    "tool_search_call", "tool_search_output", "web_search_call",
}) - {"compaction_trigger"}  # fmt: skip
"""Types of the items that a conversation may be given."""
MESSAGE_ROLES = frozenset({"assistant", "critic", "developer", "discriminator", "system", "tool", "unknown", "user"})
"""Roles of the messages of a conversation."""


def is_input_item(item: dict[str, Any]) -> bool:
    """Does an item that only this dialect understands come from the client's side of the conversation?"""
    kind = item.get("type") or "item_reference"
    if kind == "tool_search_output":
        return item.get("execution") == "client"
    if kind in _OUTPUT_SIDE:
        return False
    return kind in _INPUT_SIDE or kind.endswith(("_output", "_response"))

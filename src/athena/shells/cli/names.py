"""Words that flags take. Kept here so that help and completion need not import what they name; a test compares."""

from __future__ import annotations

DIALECTS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
LEVELS = ("debug", "info", "warning", "error")

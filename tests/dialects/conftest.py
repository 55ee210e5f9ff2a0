"""Fixtures that several files here use."""

from support.gemini_values import served, stage

__all__ = ["served", "stage"]

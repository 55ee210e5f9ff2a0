"""What keeps a measurement from being made, in words for the person who asked for it."""

from __future__ import annotations


class CannotMeasure(Exception):
    """The message says what is missing and how to get it."""

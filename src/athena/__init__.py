"""Athena makes tool calling work between any client and any model."""

__version__ = "0.1.0"

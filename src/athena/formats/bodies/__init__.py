"""Readers of call bodies: JSON after a head, JSON that holds name and arguments, tagged parameters, Python calls."""

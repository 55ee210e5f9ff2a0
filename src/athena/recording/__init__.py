"""Recordings: what came, what was made of it and what left, as values that can be read, shown, redacted and run again.

`lines` is the vocabulary of a recording, `file` its form as text. `tap` collects one while a request is served, `replay` runs
one again, `view` is what the inspector and `athena record show` read, `redact` takes the words out. Nothing here does IO: where
recordings are kept is decided in `athena.shells.recorder`.
"""

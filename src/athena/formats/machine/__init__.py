"""The machinery that all formats share: what a format is made of, and what reads text by it.

`base` says what a `Format` is, `scanner` and `recognizer` find its tokens, `engine` runs its readers, `writer` makes calls of
what they read, and `stage` puts parsers over the events of an answer.
"""

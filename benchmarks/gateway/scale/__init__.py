"""Scale: large requests, TLS, idle streams, long answers, hostile requests, long runs, several workers.

Each module measures one of them: `measure(bench, effort)` gives its figures.
"""

"""The gateway as its users meet it: a load generator, a fake upstream, and every system under test between them.

The method: the system under test alone on one core, generator and upstream on another; every
answer checked; CPU time of the system's whole process tree per request or chunk; all systems in every repetition in turn, so
that drift hits all alike; medians, and ratios to nginx taken inside of each repetition.
"""

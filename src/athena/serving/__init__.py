"""One client's request from its first byte to its last, through all the attempts it takes, without IO.

`serving` is the object that a driver (the gateway, the SDK transport, a replay, a test) moves through its states. Everything
else in this room is what it decides by: targets, retries, the health of upstreams, budgets of memory and of places, which
models take tools, how many tokens a request has. `tap` is how anything else watches.
"""

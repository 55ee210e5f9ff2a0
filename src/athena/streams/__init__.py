"""Neutral events from whatever a provider's client hands out: one loop for all of them.

`reading` iterates a source (bytes, an HTTP response, an official SDK's stream or answer) and gives `athena.Event` values;
`sdk_objects` turns what the SDKs made of the wire back into the wire's JSON. No IO of its own: the source is iterated, by `for`
or by `async for`, and the code that made it owns its connection, its timeouts and its errors.
"""

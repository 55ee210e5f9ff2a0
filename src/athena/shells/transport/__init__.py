"""The driver of `Serving` under the HTTP clients of the official SDKs; `athena.transport` is its public name.

`clients` are the two transports, synchronous and asynchronous; `engine` is what one of them keeps between requests; `bodies`
moves the bytes of one answer.
"""

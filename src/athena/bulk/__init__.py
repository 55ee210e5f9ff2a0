"""Batches of requests that a gateway answers in its own time, without IO: what a client may submit, and how it is shown.

    values       a batch and its requests, as a store holds them
    anthropic    Message Batches
    openai       Batches, and the files that they are made of
    multipart    the upload of such a file

A batch is a list of requests of one API. Each is answered like a request of its own, so all that is said here is how they are
read, and how their answers are written.
"""

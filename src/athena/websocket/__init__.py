"""The Responses API over a WebSocket, without IO: one connection's messages in, what to do about them out.

frames     a client's message as a value; our own messages as bytes
answers    the events of one answer, as messages
session    one connection: its lanes, what it remembers, and what is to be done next
"""

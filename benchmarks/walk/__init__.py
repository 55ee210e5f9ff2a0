"""How far a request walks through the code, and what the code around the sockets is made of; several checkouts side by side."""

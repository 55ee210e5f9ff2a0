"""Sockets to listen on, and clear words where that fails."""

from __future__ import annotations

import errno
import socket

from athena.errors import AthenaError

Slot = list[socket.socket]
"""The sockets of one process: one per address that the host name stands for."""
_BACKLOG = 2048
_UNSENT_BYTES = 128 * 1024
"""What the kernel may hold of an answer before it is on its way: a client that does not read holds no more than that. Bytes
in flight are not counted, so a far client is as fast as ever."""


def listen(host: str, port: int, processes: int = 1) -> list[Slot]:
    """Listening sockets for each process, all on the same port. Raises AthenaError."""
    addresses = _addresses(host, port)
    shared = processes > 1
    if shared and port:
        # Sockets that share a port let a second gateway in unseen: ask for the port alone first.
        _close(_bind(addresses, host, port, shared=False))
    slots: list[Slot] = []
    try:
        for _ in range(processes):
            slots.append(_bind(addresses, host, port, shared=shared))
            port = slots[0][0].getsockname()[1]
        for slot in slots:
            for sock in slot:
                sock.listen(_BACKLOG)
    except OSError as error:
        raise _failure(error, host, port) from None
    return slots


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise AthenaError(f"cannot listen on {host}: {error.strerror or error}", code="bad_host") from None
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bind(addresses: list[tuple[socket.AddressFamily, str]], host: str, port: int, *, shared: bool) -> Slot:
    slot: Slot = []
    for family, address in addresses:
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)  # accepted ones inherit it
            sock.setblocking(False)
            sock.bind((address, port))
        except OSError as error:
            if sock is not None:
                sock.close()
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and len(addresses) > 1:
                continue  # a name may stand for an address family that this machine does not have
            _close(slot)
            raise _failure(error, host, port) from None
        port = sock.getsockname()[1]
        slot.append(sock)
    if not slot:
        raise AthenaError(f"cannot listen on {host}: this machine has no such address", code="bad_host")
    return slot


def _close(slot: Slot) -> None:
    for sock in slot:
        sock.close()


def _failure(error: OSError, host: str, port: int) -> AthenaError:
    if error.errno == errno.EADDRINUSE:
        return AthenaError(
            f"port {port} on {host} is in use\n  Another program listens there, perhaps Athena itself (athena status).\n"
            "  Choose another port with --port; 0 takes a free one.",
            code="port_in_use",
        )
    if error.errno == errno.EACCES:
        return AthenaError(
            f"port {port} on {host} needs more rights than this user has; choose one above 1023", code="port_denied"
        )
    return AthenaError(f"cannot listen on {host} port {port}: {error.strerror or error}", code="bad_host")

"""The certificate and key of the listener: read, checked against each other, and every fault reported with its setting."""

from __future__ import annotations

import stat
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from athena.errors import ConfigError
from athena.shells.config.model import Tls

if TYPE_CHECKING:
    import ssl

_MOST_BYTES = 1024 * 1024


class CertificateProblem(ConfigError):
    """The pair cannot be used. `field` is the setting at fault, `remedy` what fixes it."""

    def __init__(self, field: str, message: str, remedy: str = "") -> None:
        super().__init__(f"tls.{field}: {message}" + (f" ({remedy})" if remedy else ""))
        self.field, self.fault, self.remedy = field, message, remedy


def listener_context(tls: Tls) -> ssl.SSLContext:
    """The server's side of TLS. Raises CertificateProblem."""
    import ssl  # slow to load, and most gateways have no certificate

    _check_holds(tls.cert, "cert", b"-----BEGIN CERTIFICATE-----", "a certificate")
    if tls.key:
        _check_holds(tls.key, "key", b"PRIVATE KEY-----", "a private key")
    else:
        _check_holds(tls.cert, "cert", b"PRIVATE KEY-----", "a private key", "name its file in tls.key")
    asked = False

    def password() -> str:
        # Without an answer of ours OpenSSL would ask at the terminal.
        nonlocal asked
        asked = True
        return tls.key_password.reveal() if tls.key_password is not None else ""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # No session is resumed: every handshake shows the certificate of the day.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(tls.cert, tls.key or None, password)
    except ssl.SSLError as error:
        raise _problem(tls, error, asked=asked) from None
    except (OSError, ValueError) as error:
        raise CertificateProblem("cert", f"cannot be used: {error}") from None
    return context


def key_file(tls: Tls) -> str:
    """The file that holds the private key."""
    return tls.key or tls.cert


def is_open_to_others(file: str) -> bool:
    """May other users of this machine read or change the file?"""
    try:
        return bool(FilePath(file).stat().st_mode & (stat.S_IRWXO | stat.S_IWGRP))
    except OSError:
        return False


def _check_holds(file: str, field: str, mark: bytes, what: str, remedy: str = "") -> None:
    try:
        if FilePath(file).exists() and not FilePath(file).is_file():
            raise CertificateProblem(field, f"{file} is not a file")
        with open(file, "rb") as stream:
            text = stream.read(_MOST_BYTES)
    except OSError as error:
        raise CertificateProblem(field, f"{file} cannot be read: {error.strerror or error}") from None
    if mark not in text:
        raise CertificateProblem(field, f"{file} does not hold {what} in PEM form", remedy)


def _problem(tls: Tls, error: ssl.SSLError, *, asked: bool) -> CertificateProblem:
    if error.reason == "KEY_VALUES_MISMATCH":
        return CertificateProblem("key", f"{key_file(tls)} does not belong to the certificate in {tls.cert}")
    if asked and tls.key_password is None:
        return CertificateProblem("key_password", f"the private key in {key_file(tls)} is encrypted", "set tls.key_password")
    if asked:
        return CertificateProblem("key_password", f"is not the password of the private key in {key_file(tls)}")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return CertificateProblem("cert", f"{tls.cert} and {key_file(tls)} cannot be used: {reason}")

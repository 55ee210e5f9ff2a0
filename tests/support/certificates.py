"""A certificate authority for tests, made anew each time."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """Issues server certificates; `ca_file` is what a client has to trust."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Athena test authority")])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        path = directory / "authority.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.ca_file = str(path)

    def server_context(self, host: str) -> ssl.SSLContext:
        """A server's side of TLS with a certificate for `host` (a name or an address)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(host, host.replace(":", "_")))
        return context

    def issue(self, host: str, name: str, password: bytes | None = None) -> tuple[Path, Path]:
        """The files of a new certificate for `host` and of its key, beside the authority's own."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            subject_name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            subject_name = x509.DNSName(host)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = (
            self._builder(subject, key)
            .add_extension(x509.SubjectAlternativeName([subject_name]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        cert_file, key_file = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.touch(mode=0o600)
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
        return cert_file, key_file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )

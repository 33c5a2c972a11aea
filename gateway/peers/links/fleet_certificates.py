"""Certificates for gateways without configured ones, signed by an authority whose key is derived from the fleet secret.

A holder of the secret can join the fleet anyway; without it, no certificate can be made that the fleet accepts
(decision 55). While the secret is rotated, the authorities of both secrets are accepted.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvstore.keys.keyring import Keyring, SecretKey
from kvstore.transfer.tls import TlsFiles

LIFETIME = timedelta(days=7)
_EARLIER = timedelta(days=1)
"""A certificate becomes valid this long before its creation, for peers whose clocks are behind."""
_AUTHORITY, _GATEWAY = (
    x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("Headway fleet", "Headway gateway")
)
_FROM, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Validity of authorities. They are replaced together with their secrets."""


class FleetTls:
    """The TLS contexts of one gateway, with a certificate that it renews halfway through its lifetime.

    Mutable: the contexts, and the certificate's creation time.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext

    def __init__(self, keyring: Keyring, host: str, wall: Callable[[], float] = time.time) -> None:
        """`host` is the name or address at which others reach the gateway; `wall` returns unix seconds."""
        self._keyring, self._host, self._wall = keyring, host, wall
        self._made_at = float("-inf")
        self.refresh()

    def refresh(self) -> bool:
        """Create a certificate if the last one has passed half its lifetime or is dated in the future; return whether
        it did.
        """
        now = self._wall()
        if 0 <= now - self._made_at < LIFETIME.total_seconds() / 2:
            return False
        # Files, because TLS reads nothing else; the directory is the user's own.
        with TemporaryDirectory() as directory:
            files = fleet_certificates(Path(directory), self._keyring, self._host, now)
            self.server, self.client = files.server(), files.client()
        self._made_at = now
        return True


def fleet_certificates(directory: Path, keyring: Keyring, host: str, now: float) -> TlsFiles:
    """Write the fleet's authorities and a certificate with a new key for `host`, created at unix time `now`.

    `directory` must be readable only by its owner.
    """
    authorities = [_authority_key(secret) for secret in keyring.every]
    key = Ed25519PrivateKey.generate()
    files = TlsFiles(
        certificate=directory / "gateway.pem", key=directory / "gateway.key", authority=directory / "authority.pem"
    )
    files.authority.write_bytes(b"".join(_authority(authority).public_bytes(Encoding.PEM) for authority in authorities))
    made_at = datetime.fromtimestamp(now, UTC)
    files.certificate.write_bytes(_certificate(key, host, authorities[0], made_at).public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def _authority_key(secret: SecretKey) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(secret.derive("authority of gateways"))


def _authority(key: Ed25519PrivateKey) -> x509.Certificate:
    builder = (
        _of(_AUTHORITY, key, serial=1)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return builder.sign(key, None)


def _certificate(
    key: Ed25519PrivateKey, host: str, authority_key: Ed25519PrivateKey, made_at: datetime
) -> x509.Certificate:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _of(_GATEWAY, key, serial=x509.random_serial_number())
        .not_valid_before(made_at - _EARLIER)
        .not_valid_after(made_at + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(issuer, critical=False)
    )
    return builder.sign(authority_key, None)


def _of(subject: x509.Name, key: Ed25519PrivateKey, *, serial: int) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return x509.CertificateBuilder(
        subject_name=subject, issuer_name=_AUTHORITY, public_key=key.public_key(), serial_number=serial
    ).add_extension(identifier, critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)

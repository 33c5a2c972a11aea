"""Certificates for gateways that were given none, signed by an authority whose key is derived from the fleet secret.

Who holds the secret can join the fleet anyway; without it, no certificate can be made that the fleet accepts
(decision 55).
"""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvstore.transfer.tls import TlsFiles

_PURPOSE = b"switchyard: authority of gateways"
_AUTHORITY, _GATEWAY = (
    x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("Switchyard fleet", "Switchyard gateway")
)
_FROM, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""A certificate ends with its process; clocks that differ must not reject it."""


def fleet_certificates(directory: Path, fleet_secret: bytes, host: str) -> TlsFiles:
    """Write the fleet's authority, and a certificate with a key of its own for `host`, a name or an address.

    Only the owner of `directory` may be able to read it.
    """
    authority_key = _derived_key(fleet_secret)
    key = Ed25519PrivateKey.generate()
    files = TlsFiles(
        certificate=directory / "gateway.pem", key=directory / "gateway.key", authority=directory / "authority.pem"
    )
    files.authority.write_bytes(_authority(authority_key).public_bytes(Encoding.PEM))
    files.certificate.write_bytes(_certificate(key, host, authority_key).public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def _derived_key(fleet_secret: bytes) -> Ed25519PrivateKey:
    derived = HKDF(SHA256(), length=32, salt=None, info=_PURPOSE).derive(fleet_secret)
    return Ed25519PrivateKey.from_private_bytes(derived)


def _authority(key: Ed25519PrivateKey) -> x509.Certificate:
    builder = (
        _of(_AUTHORITY, key, serial=1)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return builder.sign(key, None)


def _certificate(key: Ed25519PrivateKey, host: str, authority_key: Ed25519PrivateKey) -> x509.Certificate:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _of(_GATEWAY, key, serial=x509.random_serial_number())
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
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=_AUTHORITY, serial_number=serial)
        .public_key(key.public_key())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(identifier, critical=False)
    )


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

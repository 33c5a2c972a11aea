"""The picker's TLS certificate: from files that are read again on change, or self-signed."""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = timedelta(days=3650)
"""Like that of the reference implementation. Proxies do not verify it, and each start makes a new one."""
_NAMES = ("tls.crt", "tls.key")
"""Names of the files, as in a Secret of the type kubernetes.io/tls."""
_logger = logging.getLogger("headway.picker")


class PickerSettingError(Exception):
    """The picker cannot work with a setting, such as the certificate's files. The message is for the operator."""


class PickerCertificate:
    """The certificate for new connections. Mutable: the files' state when they were last read, the logged problem."""

    def __init__(self, folder: Path | None) -> None:
        """Use the files of a folder, or None for a self-signed certificate. Raises PickerSettingError."""
        self._folder = folder
        self._seen: list[tuple[int, int]] = []
        self._problem = ""
        if folder is None:
            self._current = _configuration(*self_signed())
        else:
            self._seen = _state(folder)
            self._current = _read(folder)

    def current(self) -> Any:
        """Return gRPC's configuration with the certificate."""
        return self._current

    def changed(self) -> Any:
        """Return a new configuration if the files have changed, else None. gRPC calls it for each new connection.

        Files that cannot be used are logged once, and the last certificate stays.
        """
        if self._folder is None:
            return None
        try:
            seen = _state(self._folder)
            if seen == self._seen:
                return None
            self._seen = seen
            self._current = _read(self._folder)
        except PickerSettingError as error:
            if str(error) != self._problem:
                _logger.error("%s. The last certificate stays.", error)
            self._problem = str(error)
            return None
        self._problem = ""
        _logger.info("read a new certificate from %s", self._folder)
        return self._current


def self_signed() -> tuple[bytes, bytes]:
    """Return a new certificate and its key, as PEM."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headway-picker")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of other machines may be behind.
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("headway-picker"), x509.DNSName("localhost")]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)


def _read(folder: Path) -> Any:
    certificate, key = (folder / name for name in _NAMES)
    try:
        # gRPC would only log a key that does not match, and then reject each connection.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
        return _configuration(certificate.read_bytes(), key.read_bytes())
    except (OSError, ssl.SSLError) as error:
        raise PickerSettingError(f"{certificate} and {key.name} cannot be used: {error}") from error


def _state(folder: Path) -> list[tuple[int, int]]:
    try:
        # Kubernetes replaces a folder of links at once, which changes the number of both files.
        return [(state.st_mtime_ns, state.st_ino) for state in ((folder / name).stat() for name in _NAMES)]
    except OSError as error:
        raise PickerSettingError(f"{error.filename} cannot be read: {error.strerror}") from error


def _configuration(certificate: bytes, key: bytes) -> Any:
    return grpc.ssl_server_certificate_configuration([(key, certificate)])

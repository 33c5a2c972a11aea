"""TLS of connections to engines: the trusted authorities, and the client certificate.

The system's authorities stay trusted, as do those named by OpenSSL's SSL_CERT_FILE and SSL_CERT_DIR.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gateway.base.event_log import log_event
from kvstore.transfer.tls import file_state

AUTHORITY, CERTIFICATE = "HEADWAY_ENGINE_CA", "HEADWAY_ENGINE_CERTIFICATE"
UNTRUSTED = "certificate not trusted"
"""A probe's reason for an engine whose certificate was not signed by a trusted authority."""


class EngineTlsError(ValueError):
    """A file is unusable; the message names its setting."""


class EngineTls:
    """The TLS context of connections to engines. Mutable: it is rebuilt when its files change."""

    def __init__(self, authority: str, certificate: str) -> None:
        self._authority, self._certificate = authority, certificate
        self._seen = self._states()
        self._context = self._made()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> EngineTls:
        """Return the settings in the environment; raise EngineTlsError for an unusable file."""
        return cls(environment.get(AUTHORITY, "").strip(), environment.get(CERTIFICATE, "").strip())

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Unusable changed files are logged once and ignored."""
        states = self._states()
        if states != self._seen:
            # Before the attempt, so that broken files are logged once and not for each connection.
            self._seen = states
            try:
                self._context = self._made()
            except EngineTlsError as error:
                log_event("engine_tls_unusable", level=logging.ERROR, why=str(error))
        return self._context

    def _states(self) -> list[tuple[int, int, int] | None]:
        return [file_state(Path(item)) for item in (self._authority, self._certificate) if item]

    def _made(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.set_alpn_protocols(("http/1.1",))
        for name, path, load in (
            (AUTHORITY, self._authority, context.load_verify_locations),
            (CERTIFICATE, self._certificate, context.load_cert_chain),
        ):
            try:
                if path:
                    load(path)
            except OSError as error:
                what = "a certificate and its key" if name == CERTIFICATE else "certificates"
                raise EngineTlsError(f"{name}={path!r} is no readable PEM file with {what}: {error}.") from error
        return context


@cache
def engine_tls() -> EngineTls:
    """Return this process's TLS settings for all connections to engines."""
    return EngineTls.of(os.environ)

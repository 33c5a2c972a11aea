"""TLS between hosts: both ends present a certificate from the fleet's own authority."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

import msgspec

_log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`, so that it needs no certificates."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class LiveTls(Protocol):
    """TLS contexts for new connections. Older connections keep theirs after a replacement."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def refresh(self) -> bool:
        """Replace the contexts if due, and return whether they were replaced. Raises OSError if the new ones fail."""


class IncompleteTlsError(ValueError):
    """Some of the three files are set, but not all. The message names the missing ones."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of one node."""

    certificate: Path
    key: Path
    authority: Path

    def server(self) -> ssl.SSLContext:
        """Return the context of a node, which requires a certificate from its clients."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A server's context asks for no certificate by default.
        context.verify_mode = ssl.CERT_REQUIRED
        return self._filled(context)

    def client(self) -> ssl.SSLContext:
        """Return the context of a client, which verifies the node's host name."""
        return self._filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _filled(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.authority)
        return context


class FileTls:
    """Contexts from files, which are read again after changes. Mutable: the contexts, and the files' states."""

    def __init__(self, files: TlsFiles) -> None:
        # Noted before they are read, so that a change meanwhile is not missed.
        self._files, self._seen = files, _states(files)
        self.server, self.client = files.server(), files.client()

    def refresh(self) -> bool:
        """Read changed files. Raises OSError once for unusable files, and keeps the previous contexts."""
        states = _states(self._files)
        if states == self._seen:
            return False
        # Noted before they are read, so that files that cannot be used are reported once.
        self._seen = states
        self.server, self.client = self._files.server(), self._files.client()
        return True

    def fresh(self) -> FileTls:
        """Return this object after a refresh. Unusable files are logged once."""
        try:
            self.refresh()
        except OSError as error:
            _log.warning("the changed certificate files are not used: %s", error)
        return self


def _states(files: TlsFiles) -> list[tuple[int, int, int] | None]:
    return [file_state(path) for path in (files.certificate, files.key, files.authority)]


def file_state(path: Path) -> tuple[int, int, int] | None:
    """Return values that change when a file is replaced or written, None if it does not exist."""
    try:
        stat = path.stat()
    except OSError:
        return None
    # A file that is renamed into place may keep time and size, but not the inode.
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def tls_files(paths: Sequence[Path | str | None], names: Sequence[str]) -> TlsFiles | None:
    """Return the certificate, key, and authority at these paths, None if all are missing.

    Raises IncompleteTlsError, which uses the caller's `names` for the three, if only some are set.
    """
    if not any(paths):
        return None
    if not all(paths):
        raise IncompleteTlsError(f"TLS needs all of {', '.join(names[:-1])} and {names[-1]}.")
    certificate, key, authority = (Path(path) for path in paths if path)
    return TlsFiles(certificate=certificate, key=key, authority=authority)

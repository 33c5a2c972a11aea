"""Certificates of a private authority, as hosts of a fleet show them to each other."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kvstore.transfer.tls import TlsFiles


def certificates(directory: Path, host: str = "IP:127.0.0.1") -> TlsFiles:
    """Make an authority in this directory, and a certificate for the host."""
    directory.mkdir(parents=True, exist_ok=True)

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(*new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    openssl(
        *new, "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "node.key", "-out", "node.pem", "-subj", "/CN=node",
        "-addext", f"subjectAltName={host}",
    )  # fmt: skip
    return TlsFiles(certificate=directory / "node.pem", key=directory / "node.key", authority=directory / "ca.pem")

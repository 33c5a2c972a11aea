"""Certificates of a private authority, for hosts of a fleet that authenticate each other."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from kvstore.transfer.tls import TlsFiles
from tests.gateway.ports import listen


def certificates(directory: Path, host: str = "IP:127.0.0.1") -> TlsFiles:
    """Create an authority in this directory, and a certificate for the host."""
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


@asynccontextmanager
async def tls_engine(files: TlsFiles, *, asks: bool = False) -> AsyncIterator[str]:
    """Serve /health over TLS. With `asks`, accept only clients with a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.authority)

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/health", health)
    runner, listener = web.AppRunner(app), listen()
    await runner.setup()
    await web.SockSite(runner, listener, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()

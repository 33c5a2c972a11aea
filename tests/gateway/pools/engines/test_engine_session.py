"""HTTP sessions to engines: interim responses, dead peers, and TLS settings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.pools.engines.engine_session import MAX_INTERIM, engine_session
from gateway.pools.engines.engine_tls import AUTHORITY, CERTIFICATE, UNTRUSTED, EngineTls, EngineTlsError, engine_tls
from gateway.pools.engines.health_probe import EngineUnreachableError
from gateway.pools.engines.vllm_adapter import VllmAdapter
from kvstore.transfer.tls import TlsFiles
from tests.certificates import certificates, tls_engine
from tests.patience import PATIENCE_S

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Raw:
    """Serve the raw bytes of a test and count the connections it accepted."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks
        self.taken = 0
        self.over = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for chunk in self._chunks:
                    writer.write(chunk)
                    await writer.drain()
                    self.taken += len(chunk)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()
            self.over.set()


@asynccontextmanager
async def raw(*chunks: bytes) -> AsyncIterator[tuple[Raw, aiohttp.ClientSession]]:
    server = Raw(list(chunks))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    async with listening, engine_session(keepalive_s=30.0) as session:
        yield server, session


async def test_a_few_interim_responses_are_ignored_and_the_connection_is_kept() -> None:
    async with raw(MAX_INTERIM * INTERIM + ANSWER) as (server, session):
        for _ in range(3):
            async with session.get(server.url) as response:
                assert await response.read() == b"ok"


async def test_an_engine_that_sends_endless_interim_responses_is_disconnected() -> None:
    chunk = 2_000 * INTERIM
    async with raw(*[chunk] * 100, ANSWER) as (server, session), asyncio.timeout(PATIENCE_S):
        with pytest.raises(aiohttp.ClientError):
            await session.get(server.url)
        await server.over.wait()
        assert server.taken < 100 * len(chunk)


async def test_an_idle_connection_uses_tcp_keepalive() -> None:
    async with raw(ANSWER) as (server, session), session.get(server.url) as response:
        assert response.connection is None or response.connection.transport is not None
        async with session.get(server.url) as again:
            assert again.status == 200
        (kept,) = [item for held in session.connector._conns.values() for item, _ in held]  # type: ignore[union-attr]
        connected = kept.transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certificates(tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certificates(tmp_path_factory.mktemp("others"))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    engine_tls.cache_clear()
    yield
    engine_tls.cache_clear()


def both(files: TlsFiles, folder: Path) -> Path:
    """Return one file that contains certificate and key."""
    path = folder / "client.pem"
    path.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    return path


async def ask(url: str) -> None:
    async with engine_session(keepalive_s=1.0) as session:
        await VllmAdapter(session, url).health()


async def test_a_private_certificate_authority_is_trusted_once_configured(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tls_engine(files) as url:
        with pytest.raises(EngineUnreachableError, match=UNTRUSTED):
            await ask(url)
        engine_tls.cache_clear()
        monkeypatch.setenv(AUTHORITY, str(files.authority))
        await ask(url)


async def test_the_ssl_cert_file_variable_is_still_honored(files: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
    async with tls_engine(files) as url:
        await ask(url)


async def test_an_engine_that_requests_a_client_certificate_gets_it(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(AUTHORITY, str(files.authority))
    async with tls_engine(files, asks=True) as url:
        with pytest.raises(EngineUnreachableError):
            await ask(url)
        engine_tls.cache_clear()
        monkeypatch.setenv(CERTIFICATE, str(both(files, tmp_path)))
        await ask(url)


async def test_changed_files_apply_to_new_connections(
    files: TlsFiles, others: TlsFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_bytes(others.authority.read_bytes())
    monkeypatch.setenv(AUTHORITY, str(authority))
    async with tls_engine(files) as url:
        with pytest.raises(EngineUnreachableError, match=UNTRUSTED):
            await ask(url)
        authority.write_bytes(files.authority.read_bytes() + b"\n")
        await ask(url)
        authority.write_text("nonsense")
        await ask(url)


def test_an_unusable_file_is_reported_with_its_setting(files: TlsFiles, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name, path in (
        (AUTHORITY, tmp_path / "nowhere.pem"),
        (AUTHORITY, tmp_path / "empty.pem"),
        (CERTIFICATE, files.certificate),
    ):
        with pytest.raises(EngineTlsError, match=f"{name}='{path}' is no readable PEM file"):
            EngineTls.of({name: str(path)})
    EngineTls.of({AUTHORITY: " ", CERTIFICATE: ""})

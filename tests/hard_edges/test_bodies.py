"""R31, R32: every endpoint rejects a body that is too large, compressed or not, before it is spooled."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator

import pytest
from backports import zstd

from bench.live.live_program import LiveProgram, live_program
from gateway.base.settings import PROXY_BODY_LIMIT
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes

MIB = 1 << 20
WAYS = ("/login", "/api/v1/pools", "/api/v1/route", "/v1/chat/completions")
LARGE = 100 * MIB


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with live_program(tmp_path_factory.mktemp("program")) as started:
        yield started


class TemporaryFiles:
    """Measures the server's temporary files while a block runs."""

    def __init__(self, running: LiveProgram) -> None:
        self.largest = 0
        self._running = running
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._measure)

    def __enter__(self) -> TemporaryFiles:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._done.wait(0.005):
            self.largest = max(self.largest, self._running.largest_open_file())


def send(running: LiveProgram, head: bytes, pieces: Iterator[bytes]) -> tuple[int, int]:
    """Send until the server responds or closes; return the status and the number of bytes sent."""
    sent = 0
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head)
        try:
            for piece in pieces:
                connection.sendall(piece)
                sent += len(piece)
                if connection in select(connection):
                    break
        except (BrokenPipeError, ConnectionResetError):
            # The server has answered and closed; the answer is still in the receive buffer.
            pass
        answer = connection.recv(4096)
    return int(answer.split()[1]), sent


def select(connection: socket.socket) -> list[socket.socket]:
    from select import select as wait

    return wait([connection], [], [], 0)[0]


def head(way: str, *more: str) -> bytes:
    lines = [f"POST {way} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.parametrize("way", WAYS)
def test_declared_100_mb_body_is_rejected_by_its_length(running: LiveProgram, way: str) -> None:
    with TemporaryFiles(running) as files:
        status, sent = send(running, head(way, f"Content-Length: {LARGE}"), iter([b"x" * MIB] * 100))
    assert status == 413
    assert sent < LARGE / 2
    assert files.largest <= MIB


@pytest.mark.parametrize("way", WAYS)
def test_chunked_body_is_rejected_once_it_exceeds_the_limit(running: LiveProgram, way: str) -> None:
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    before = running.resident_mib()
    with TemporaryFiles(running) as files:
        status, sent = send(running, head(way, "Transfer-Encoding: chunked"), iter([chunk] * 1600))
    assert status in (401, 403, 413)
    assert sent < LARGE
    assert files.largest <= MIB
    assert running.resident_mib() - before < 64


@pytest.mark.parametrize("way", [*WAYS, "/live"])
def test_endless_trailers_use_no_memory(running: LiveProgram, way: str) -> None:
    lines = b"".join(b"x-%d: %s\r\n" % (number, b"a" * 40) for number in range(2000))
    start = head(way, "Transfer-Encoding: chunked") + b"0\r\n"
    before = running.resident_mib()
    for _ in range(4):
        _, sent = send(running, start, iter([lines] * 600))
        assert sent < LARGE / 2
    assert running.resident_mib() - before < 32


@pytest.mark.parametrize("way", ["/trials/recordings", "/api/v1/recordings/upload?pool=demo"])
def test_unauthenticated_upload_is_rejected_before_its_body(running: LiveProgram, way: str) -> None:
    with TemporaryFiles(running) as files:
        status, _ = send(running, head(way, f"Content-Length: {16 * MIB}"), iter([b"x" * MIB] * 16))
    assert status in (302, 401, 403)
    assert files.largest <= MIB


def test_small_body_is_accepted(running: LiveProgram) -> None:
    status, _ = send(running, head("/api/v1/route", "Content-Length: 2", "Authorization: Bearer x"), iter([b"{}"]))
    assert status == 401


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, identity", "x-unknown"])
@pytest.mark.parametrize("way", WAYS)
def test_bodies_with_unsupported_encodings_are_not_decompressed(running: LiveProgram, way: str, encoding: str) -> None:
    bomb = gzip.compress(b"[" * (20 * MIB), 1)
    before = running.resident_mib()
    lines = (f"Content-Encoding: {encoding}", f"Content-Length: {len(bomb)}")
    status, _ = send(running, head(way, *lines), iter([bomb]))
    assert status == 415
    assert running.resident_mib() - before < 10


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """Return 256 MiB, compressed with each encoding."""
    return {"gzip": gzip.compress(bytes(256 * MIB), 1), "zstd": zstd.compress(bytes(256 * MIB), 1)}


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("way", WAYS)
def test_compression_bomb_is_decompressed_no_further_than_the_limit(
    running: LiveProgram, bombs: dict[str, bytes], way: str, encoding: str
) -> None:
    bomb, before = bombs[encoding], running.resident_mib()
    lines = (
        f"Content-Encoding: {encoding}",
        f"Content-Length: {len(bomb)}",
        f"Authorization: Bearer {running._api_key}",
    )
    with TemporaryFiles(running) as files:
        status, _ = send(running, head(way, *lines), iter([bomb]))
    assert status in (401, 403, 413)
    assert status == 413 or way not in ("/api/v1/route", "/v1/chat/completions")
    assert files.largest <= MIB
    assert running.resident_mib() - before < 2 * PROXY_BODY_LIMIT / MIB


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 400, "0x10", "1, 2", "１"])
def test_malformed_content_length_is_a_client_error(running: LiveProgram, length: str) -> None:
    status, _ = send(running, head("/api/v1/route", f"Content-Length: {length}"), iter([b"{}"]))
    assert 400 <= status < 500

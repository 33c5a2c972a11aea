"""Links of gateways on different hosts use mutual TLS for owner messages, heartbeats and forwarded requests."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from gateway.base.metrics import GatewayMetrics
from gateway.base.peer_settings import PeerSettings
from gateway.bus.bus import InProcessBus
from gateway.peering import Peering
from gateway.peers.links.fleet_certificates import LIFETIME, FleetTls, fleet_certificates
from gateway.peers.links.peer_link import PATH, PeerLinks
from gateway.peers.links.peer_proof import PeerIdentity
from kvstore.keys.keyring import Keyring
from kvstore.transfer.tls import FileTls, LiveTls, TlsFiles
from routing.values.decision import Dispatched
from tests.certificates import certificates
from tests.gateway.live_gateway import engine_entry, request, snapshot
from tests.gateway.peers.owners.shared_fleet import fleet, split
from tests.gateway.peers.regions.three_regions import three_regions
from tests.gateway.scripted_engine import ScriptedEngine
from tests.patience import PATIENCE_S, until

KEYRING = Keyring.of(b"the secret of a fleet of gateways")
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["files", "derived"])
def tls(request: pytest.FixtureRequest, files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Certificate files provided to gateways, and those that gateways create."""
    return files if request.param == "files" else derived(tmp_path_factory.mktemp("derived"))


def derived(folder: Path, host: str = "127.0.0.1", keyring: Keyring = KEYRING) -> TlsFiles:
    folder.mkdir(exist_ok=True)
    return fleet_certificates(folder, keyring, host, time.time())


@asynccontextmanager
async def listening(tls: TlsFiles | LiveTls) -> AsyncIterator[int]:
    """Run the server side of a gateway's links; yield its port."""
    live = FileTls(tls) if isinstance(tls, TlsFiles) else tls
    links = PeerLinks(PeerIdentity("bbbbbbbb", "eu"), KEYRING, live)
    try:
        yield await links.start("127.0.0.1", 0)
    finally:
        await links.stop()


async def answer_to(port: int, tls: ssl.SSLContext | None) -> int:
    """Return the response status of a connection without proof, once TLS is established."""
    scheme = "http" if tls is None else "https"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        session.get(f"{scheme}://127.0.0.1:{port}{PATH}", ssl=tls if tls is not None else True) as answer,
    ):
        return answer.status


async def test_only_certificates_of_the_fleets_authority_reach_the_proof(files: TlsFiles, tmp_path: Path) -> None:
    foreign = certificates(tmp_path)
    bare = ssl.create_default_context(cafile=files.authority)
    from_elsewhere = ssl.create_default_context(cafile=files.authority)
    from_elsewhere.load_cert_chain(foreign.certificate, foreign.key)
    async with listening(files) as port:
        assert await answer_to(port, files.client()) == 401
        for without in (None, bare, from_elsewhere):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await answer_to(port, without)
    async with listening(foreign) as port:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer_to(port, files.client())


async def test_a_certificate_for_another_host_is_rejected(tmp_path: Path) -> None:
    other = certificates(tmp_path, "DNS:elsewhere.internal")
    async with listening(other) as port:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer_to(port, other.client())


async def test_a_holder_of_the_fleet_secret_creates_a_certificate_that_the_fleet_accepts(tmp_path: Path) -> None:
    async with listening(derived(tmp_path / "one")) as port:
        assert await answer_to(port, derived(tmp_path / "two").client()) == 401
        for without in (
            None,
            derived(tmp_path / "foreign", keyring=Keyring.of(b"the secret of another fleet")).client(),
        ):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await answer_to(port, without)
    async with listening(derived(tmp_path / "elsewhere", "gateway-1.internal")) as port:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer_to(port, derived(tmp_path / "three").client())


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7", "gateway-1"])
def test_beyond_loopback_gateways_use_tls_without_configured_files(host: str, tmp_path: Path) -> None:
    for where, secure in ((host, True), ("127.0.0.1", False)):
        peering = Peering(InProcessBus(), PeerSettings(host=where), "aaaaaaaa", KEYRING, tmp_path, GatewayMetrics())
        assert peering.links is not None
        assert [item is not None for item in (peering.links._port._tls, peering.links._tls)] == [secure, secure]
    assert list(tmp_path.iterdir()) == [], "no key stays on disk"


def shown_at(port: int) -> x509.Certificate:
    """Return the certificate that a gateway presents to anyone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(sock) as connection:
        shown = connection.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown)


@asynccontextmanager
async def linked(one: LiveTls, other: LiveTls) -> AsyncIterator[tuple[PeerLinks, int]]:
    """Yield a gateway connected to another one, and the port of that other one."""
    ends = [PeerLinks(PeerIdentity(8 * tag, "eu"), KEYRING, tls) for tag, tls in (("a", one), ("b", other))]

    async def echo(_peer: PeerIdentity, body: bytes) -> bytes:
        return body

    ends[1].on_call("echo", echo)
    try:
        _, port = [await end.start("127.0.0.1", 0) for end in ends]
        ends[0].set_peers({"b": f"127.0.0.1:{port}"})
        await until(lambda: ends[0].connected("b"))
        yield ends[0], port
    finally:
        for end in ends:
            await end.stop()


async def test_a_gateway_renews_its_certificate_at_half_its_life_and_drops_no_link() -> None:
    # So that both certificates are valid by the clock of OpenSSL, which is the machine's.
    began = now = time.time() - 3.5 * DAY_S
    one, other = (FleetTls(KEYRING, "127.0.0.1", lambda: now) for _ in range(2))
    async with linked(one, other) as (asking, port):
        link = asking._links["b"]._socket
        first = await asyncio.to_thread(shown_at, port)
        assert first.not_valid_after_utc.timestamp() == pytest.approx(began + 7 * DAY_S, abs=1)
        assert first.not_valid_before_utc.timestamp() == pytest.approx(began - DAY_S, abs=1)
        now = began + 3.5 * DAY_S - 1
        assert not other.refresh()
        now = began + 3.5 * DAY_S
        assert other.refresh()
        second = await asyncio.to_thread(shown_at, port)
        assert second.serial_number != first.serial_number
        assert second.not_valid_after_utc.timestamp() == pytest.approx(now + 7 * DAY_S, abs=1)
        assert await asking.ask("b", "echo", b"hello", 30) == b"hello"
        assert asking._links["b"]._socket is link, "the link is the same"
        # And a new link uses the new certificate, which names the same host and authority.
        assert await answer_to(port, one.client) == 401
    assert LIFETIME.total_seconds() == 7 * DAY_S


def test_a_certificate_is_renewed_if_the_clock_goes_back_before_its_start() -> None:
    now = time.time()
    tls = FleetTls(KEYRING, "127.0.0.1", lambda: now)
    now -= 1
    assert tls.refresh()
    assert not tls.refresh()


async def test_an_expired_certificate_is_rejected() -> None:
    long_ago = time.time() - 8 * DAY_S
    expired = FleetTls(KEYRING, "127.0.0.1", lambda: long_ago)
    current = FleetTls(KEYRING, "127.0.0.1")
    async with listening(current) as port:
        assert await answer_to(port, current.client) == 401
        with pytest.raises((aiohttp.ClientError, OSError)):
            await answer_to(port, expired.client)
    async with listening(expired) as port:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer_to(port, current.client)


@pytest.mark.parametrize("listens", range(4))
@pytest.mark.parametrize("calls", range(4))
async def test_during_rotation_the_authorities_of_both_secrets_are_accepted(calls: int, listens: int) -> None:
    steps = (b"before", b""), (b"before", b"after"), (b"after", b"before"), (b"after", b"")
    caller, listener = (FleetTls(Keyring.of(*steps[step]), "127.0.0.1") for step in (calls, listens))
    async with listening(listener) as port:
        if abs(calls - listens) <= 1:
            assert await answer_to(port, caller.client) == 401
        elif {calls, listens} == {0, 3}:
            with pytest.raises((aiohttp.ClientError, OSError)):
                await answer_to(port, caller.client)


async def test_changed_files_are_reloaded_and_drop_no_link(tmp_path: Path) -> None:
    files, other = certificates(tmp_path / "own"), certificates(tmp_path / "new")
    live = FileTls(files)
    async with linked(live, live) as (asking, port):
        before = await asyncio.to_thread(shown_at, port)
        assert not live.refresh()
        whole = files.key.read_bytes()
        for kind in ("certificate", "authority"):
            getattr(files, kind).write_bytes(getattr(other, kind).read_bytes())
        with pytest.raises(OSError, match=r"(?i)key.values.mismatch"):
            live.refresh()
        assert not live.refresh(), "the same files are not tried twice"
        assert await asyncio.to_thread(shown_at, port) == before
        files.key.write_bytes(other.key.read_bytes())
        assert files.key.read_bytes() != whole
        assert live.refresh()
        assert await asyncio.to_thread(shown_at, port) != before
        assert await asking.ask("b", "echo", b"hello", 30) == b"hello"
        # The authority before is accepted no longer.
        assert await answer_to(port, other.client()) == 401
        with pytest.raises((aiohttp.ClientError, OSError)):
            await answer_to(port, certificates(tmp_path / "own").client())


async def test_an_owner_decides_over_tls(tls: TlsFiles, tmp_path: Path) -> None:
    async with ScriptedEngine() as engine:
        topology = snapshot([engine_entry("e1", engine.url)])
        async with fleet(tmp_path, topology, tls=tls) as gateways:
            owner, (other,) = split(gateways)
            outcome = await other.pools["pool"].decide(request(other.new_id(), (), 100), hold=True)
            assert isinstance(outcome, Dispatched)
            assert outcome.decision.decided_by == f"{owner.settings.peers.name}, epoch 1"  # type: ignore[union-attr]
            for gateway in gateways:
                port = int(gateway.peering._address.rpartition(":")[2])
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await answer_to(port, None)


async def test_a_request_is_forwarded_over_tls(tls: TlsFiles, tmp_path: Path) -> None:
    async with three_regions(tmp_path, tls=tls) as regions:
        regions.engines["us"].stall = True
        stays = asyncio.create_task(regions.chat("us", "stays"))
        async with asyncio.timeout(PATIENCE_S):
            await regions.engines["us"].received.wait()
            status, _, decision_id = await regions.chat("us", "goes", stream=True)
        assert status == 200
        assert (await regions.explain("us", decision_id))["hop"]["destination"] in ("eu", "asia")
        stays.cancel()
        await asyncio.gather(stays, return_exceptions=True)

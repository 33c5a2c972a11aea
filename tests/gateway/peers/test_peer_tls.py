"""Between hosts the links of gateways are mutual TLS: owners' messages, heartbeats and forwarded requests alike."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.base.metrics import GatewayMetrics
from gateway.base.peer_settings import PeerSettings
from gateway.bus.bus import InProcessBus
from gateway.peering import Peering
from gateway.peers.fleet_certificates import fleet_certificates
from gateway.peers.peer_link import PATH, PeerIdentity, PeerLinks
from kvstore.transfer.tls import TlsFiles
from routing.values.decision import Dispatched
from tests.certificates import certificates
from tests.gateway.live_gateway import engine_entry, request, snapshot
from tests.gateway.owners.shared_fleet import fleet, split
from tests.gateway.regions.three_regions import three_regions
from tests.gateway.scripted_engine import ScriptedEngine
from tests.patience import PATIENCE_S

SECRET = b"the secret of a fleet of gateways"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["files", "derived"])
def tls(request: pytest.FixtureRequest, files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """The files that gateways were given, and those that they make themselves."""
    return files if request.param == "files" else derived(tmp_path_factory.mktemp("derived"))


def derived(folder: Path, host: str = "127.0.0.1", secret: bytes = SECRET) -> TlsFiles:
    folder.mkdir(exist_ok=True)
    return fleet_certificates(folder, secret, host)


@asynccontextmanager
async def listening(files: TlsFiles) -> AsyncIterator[int]:
    """Run a gateway's end of the links; yields its port."""
    links = PeerLinks(PeerIdentity("bbbbbbbb", "eu"), SECRET, server_tls=files.server(), client_tls=files.client())
    try:
        yield await links.start("127.0.0.1", 0)
    finally:
        await links.stop()


async def answer_to(port: int, tls: ssl.SSLContext | None) -> int:
    """Return the status of a connection without proof, once TLS stands."""
    scheme = "http" if tls is None else "https"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        session.get(f"{scheme}://127.0.0.1:{port}{PATH}", ssl=tls if tls is not None else True) as answer,
    ):
        return answer.status


async def test_only_certificates_of_the_fleets_authority_get_as_far_as_the_proof(
    files: TlsFiles, tmp_path: Path
) -> None:
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


async def test_who_holds_the_fleet_secret_makes_a_certificate_that_the_fleet_knows(tmp_path: Path) -> None:
    async with listening(derived(tmp_path / "one")) as port:
        assert await answer_to(port, derived(tmp_path / "two").client()) == 401
        for without in (None, derived(tmp_path / "foreign", secret=b"the secret of another fleet").client()):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await answer_to(port, without)
    async with listening(derived(tmp_path / "elsewhere", "gateway-1.internal")) as port:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer_to(port, derived(tmp_path / "three").client())


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7", "gateway-1"])
def test_beyond_loopback_gateways_use_tls_though_they_were_given_no_files(host: str, tmp_path: Path) -> None:
    for where, secure in ((host, True), ("127.0.0.1", False)):
        peering = Peering(InProcessBus(), PeerSettings(host=where), "aaaaaaaa", SECRET, tmp_path, GatewayMetrics())
        assert peering.links is not None
        contexts = (peering.links._port._tls, peering.links._client_tls)
        assert [each is not None for each in contexts] == [secure, secure]
    assert list(tmp_path.iterdir()) == [], "no key stays on disk"


async def test_an_owner_decides_over_tls(tls: TlsFiles, tmp_path: Path) -> None:
    async with ScriptedEngine() as engine:
        topology = snapshot([engine_entry("e1", engine.url)])
        async with fleet(tmp_path, topology, tls=tls) as gateways:
            owner, (other,) = split(gateways)
            outcome = await other.pools["pool"].place(request(other.new_id(), (), 100), hold=True)
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

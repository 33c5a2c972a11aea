"""The picker's certificate: self-signed, from files, replaced while it runs; and its health without TLS."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from pathlib import Path
from typing import Any

import pytest

from bench.live.loopback_ports import free_port
from tests.deploy.real_proxy import require_grpc

require_grpc()

import grpc
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.envoy.certificate import PickerCertificate, PickerSettingError, self_signed
from deploy.envoy.picker import served
from tests.deploy.behind import CHAT
from tests.deploy.ext_proc_stream import ask, checked, endpoint_of, ext_proc_grpc, scripted_headway, settings
from tests.patience import PATIENCE_S

SERVING = health_pb2.HealthCheckResponse.SERVING


def written(folder: Path, made: tuple[bytes, bytes] | None = None) -> bytes:
    """Write a certificate and its key as Kubernetes does, all at once; return the certificate."""
    certificate, key = made or self_signed()
    data = folder / f"..data-{secrets.token_hex(4)}"
    data.mkdir()
    (data / "tls.crt").write_bytes(certificate)
    (data / "tls.key").write_bytes(key)
    for name in ("tls.crt", "tls.key"):
        (folder / f"{name}.new").symlink_to(data / name)
        (folder / f"{name}.new").rename(folder / name)
    return certificate


async def presented(port: int) -> bytes:
    """Return the certificate that the picker presents to a new connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        held: Any = writer.get_extra_info("ssl_object")
        assert held.selected_alpn_protocol() == "h2"
        writer.close()
        return ssl.DER_cert_to_PEM_cert(held.getpeercert(binary_form=True)).encode()


async def test_picker_serves_tls_with_a_certificate_of_its_own_and_no_plaintext() -> None:
    async with scripted_headway() as headway, served(settings(headway.url, plaintext=False)) as (_, port):
        made = x509.load_pem_x509_certificate(await presented(port))
        usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
        assert made.subject == made.issuer
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_clients_can_verify_a_certificate_from_files(tmp_path: Path) -> None:
    authority = grpc.ssl_channel_credentials(written(tmp_path))
    name = [("grpc.ssl_target_name_override", "headway-picker")]
    async with (
        scripted_headway() as headway,
        served(settings(headway.url, plaintext=False, cert_dir=tmp_path)) as (_, port),
        grpc.aio.secure_channel(f"127.0.0.1:{port}", authority, options=name) as channel,
    ):
        stub = ext_proc_grpc.ExternalProcessorStub(channel)
        _, first = await ask(lambda: stub.Process(timeout=PATIENCE_S), CHAT)
        assert endpoint_of(first) == ["10.1.0.1:8000"]


async def test_new_connections_get_replaced_files_and_unusable_ones_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway.picker")
    before = written(tmp_path)
    async with (
        scripted_headway() as headway,
        served(settings(headway.url, plaintext=False, cert_dir=tmp_path)) as (_, port),
    ):
        assert await presented(port) == before
        replaced = written(tmp_path)
        assert await presented(port) == replaced
        # A certificate with the key of another one.
        written(tmp_path, (self_signed()[0], self_signed()[1]))
        assert [await presented(port) for _ in range(3)] == [replaced] * 3
        (tmp_path / "tls.key").unlink()
        assert [await presented(port) for _ in range(3)] == [replaced] * 3
        again = written(tmp_path)
        assert await presented(port) == again
    levels = [record.levelname for record in caplog.records if record.name == "headway.picker"]
    assert levels == ["INFO", "ERROR", "ERROR", "INFO"]


@pytest.mark.parametrize("lacks", ["tls.crt", "tls.key", "match"])
def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path, lacks: str) -> None:
    written(tmp_path, (self_signed()[0], self_signed()[1]) if lacks == "match" else None)
    if lacks != "match":
        (tmp_path / lacks).unlink()
    with pytest.raises(PickerSettingError, match="tls"):
        PickerCertificate(tmp_path)


async def test_probes_reach_the_health_service_without_tls() -> None:
    probed = f"127.0.0.1:{free_port()}"
    async with (
        scripted_headway() as headway,
        served(settings(headway.url, plaintext=False, health_listen=probed)),
        grpc.aio.insecure_channel(probed) as channel,
    ):
        checks = health_pb2_grpc.HealthStub(channel)
        assert await checked(checks, "liveness") == SERVING
        async with asyncio.timeout(PATIENCE_S):
            while await checked(checks, "readiness") != SERVING:
                await asyncio.sleep(0.01)
        # Nothing but health: decisions need TLS.
        stub = ext_proc_grpc.ExternalProcessorStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.Process(timeout=PATIENCE_S).read()
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED

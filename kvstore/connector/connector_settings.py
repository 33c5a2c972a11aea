"""Connector settings: `kv_connector_extra_config` in vLLM's `--kv-transfer-config`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvstore.backends.backend import BackendSettings
from kvstore.keys.keyring import Keyring
from kvstore.transfer.tls import TlsFiles, tls_files

_Seconds = Annotated[float, Meta(gt=0, le=600)]


class ConnectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of one engine, read by `settings_in`."""

    backend: Literal["node", "mooncake"] = "node"
    """Block store: node managers, or Mooncake Store."""
    node: str = ""
    """Address (host:port) of the engine's own node manager, or of Mooncake's master. Empty: the engine stores no
    blocks.
    """
    ask_node: bool = False
    """Whether requests without an order from a gateway query the engine's own node for their blocks. Gateways do not
    know the contents of Mooncake, so engines with Mooncake always query.
    """
    lookup_timeout_s: _Seconds = 0.1
    """Timeout of such a query."""
    load_timeout_s: _Seconds = 2.0
    """Blocks that arrive later are computed. Also the maximum silence of a node."""
    max_load_ratio: Annotated[float, Meta(ge=0)] = 3.0
    """Blocks are also computed if the wait exceeds their computing time by this factor. 0: orders are always
    followed.
    """
    layer_wise: bool = False
    """Whether a step that computes the rest of a prompt loads the beginning layer by layer, if the estimated load is
    the shorter of both, and whether blocks to be stored are copied layer by layer.
    """
    prefetch_share: Annotated[float, Meta(ge=0, le=0.5)] = 0.1
    """Share of the engine's blocks that prefetched blocks may take until they are used. 0: none are prefetched."""
    load_threads: Annotated[int, Meta(ge=1, le=64)] = 4
    """Maximum concurrent loads."""
    save_buffer_mib: Annotated[int, Meta(ge=1, le=65_536)] = 256
    """Memory limit of blocks waiting to be stored. Blocks beyond it are not stored."""
    store_again_s: Annotated[float, Meta(gt=0)] = 600.0
    """Interval after which a used block is offered to the node again, because the node can have lost it."""
    mooncake_host: str = "127.0.0.1"
    """Address under which other members of Mooncake Store reach this engine."""
    mooncake_segment_mib: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    """Memory that this engine contributes to Mooncake Store."""
    mooncake_protocol: Literal["tcp", "rdma"] = "tcp"
    mooncake_devices: str = ""
    """Network devices for Mooncake, separated by commas."""
    weight_revision: str = ""
    """Distinguishes these weights from others of the same name. Empty: derived from samples of the model's files."""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_authority: str = ""

    @property
    def asks(self) -> bool:
        """Whether requests without an order query the store for their blocks."""
        return bool(self.node) and (self.ask_node or self.backend == "mooncake")

    @property
    def prefetches(self) -> bool:
        """Whether the engine takes prefetches, which need the names that node managers keep."""
        return bool(self.node) and self.backend == "node" and self.prefetch_share > 0

    def store(self, keyring: Keyring | None, *, keeps: bool) -> BackendSettings:
        """Return the backend's settings. Only an engine that `keeps` blocks contributes memory to Mooncake Store."""
        return BackendSettings(
            address=self.node,
            timeout_s=self.load_timeout_s,
            keyring=keyring,
            tls=self.tls,
            host=self.mooncake_host,
            segment_bytes=self.mooncake_segment_mib << 20 if keeps else 0,
            protocol=self.mooncake_protocol,
            devices=self.mooncake_devices,
        )

    @property
    def tls(self) -> TlsFiles | None:
        """TLS files for nodes on other hosts, None if only loopback is used."""
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        return tls_files(files, ("tls_certificate", "tls_key", "tls_authority"))


_decoder = msgspec.json.Decoder(ConnectorSettings)


def settings_in(extra_config: Mapping[str, Any]) -> ConnectorSettings:
    """Return the settings. Raises ValueError on unknown or invalid ones."""
    try:
        # By way of JSON: a converter would inspect the struct at its first use, in an arbitrary thread.
        settings = _decoder.decode(msgspec.json.encode(dict(extra_config)))
    except msgspec.ValidationError as error:
        raise ValueError(f"kv_connector_extra_config: {error}") from error
    if settings.backend == "mooncake" and not settings.node:
        raise ValueError('kv_connector_extra_config: with the backend mooncake, "node" is the address of its master')
    return settings


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_WHOLE = ("config.json", "quantize_config.json", "hf_quant_config.json", "adapter_config.json")
_SAMPLES, _SAMPLE_BYTES = 64, 4096


def weight_revision(folder: Path) -> str:
    """Return a digest of the weight files' sizes, beginnings, and evenly spaced samples.

    Training changes nearly every weight, so the samples of two revisions also differ. Raises ValueError if a folder
    contains no weights.
    """
    digest = hashlib.sha256(b"headway weights 1\0")
    weights = sorted(path for path in folder.iterdir() if path.suffix in _WEIGHTS and path.is_file())
    if not weights:
        raise ValueError(f"{folder} has no weight files; set weight_revision in kv_connector_extra_config")
    for name in _WHOLE:
        if (folder / name).is_file():
            _add(digest, name, (folder / name).read_bytes())
    for path in weights:
        size = path.stat().st_size
        _add(digest, path.name, str(size).encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                _add(digest, "", file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


@lru_cache(maxsize=1024)
def adapter_revision(name: str, folder: Path, number: int) -> str:
    """Return what distinguishes a LoRA adapter from others of the same name, as of its first use under this number."""
    # The files can be replaced while the engine still computes with what it has loaded.
    return f"{name} {weight_revision(folder)}" if folder.is_dir() else f"{name}@{folder}"


def _add(digest: hashlib._Hash, name: str, data: bytes) -> None:
    for part in (name.encode(), data):
        # Lengths are hashed too, so that names and contents cannot run into each other.
        digest.update(len(part).to_bytes(8, "big") + part)

"""SGLang's storage backend on Headway's node managers: `--hicache-storage-backend dynamic` names this module and class.

It needs SGLang and torch, and only `kvstore` of Headway. Pages are stored by `page_store`; this file adapts it to
SGLang's API (0.5.23, `sglang/srt/mem_cache/hicache_storage.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sglang
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage
from typing_extensions import override

from kvstore.backends.registry import BACKENDS
from kvstore.connector.connector_settings import settings_in, weight_revision
from kvstore.connector.page_store import PageStore
from kvstore.keys.payload_key import PayloadFormat
from kvstore.transfer.shared_secret import kv_keyring


class HeadwayStorage(HiCacheStorage):
    """The storage backend of one rank. Raises ValueError if an option is invalid."""

    def __init__(self, storage_config: Any, _more: Any = None) -> None:
        """Read `extra_config["headway"]`, which has the options of `ConnectorSettings`."""
        self._config = storage_config
        self._settings = settings_in((storage_config.extra_config or {}).get("headway", {}))
        if not self._settings.node:
            raise ValueError('hicache-storage-backend-extra-config: "headway" needs "node", the address of a node')
        if not storage_config.extra_config.get("interface_v1"):
            raise ValueError('hicache-storage-backend-extra-config: set "interface_v1": 1')

    @override
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Connect to the store: the pool determines the layout of pages."""
        super().register_mem_pool_host(mem_pool_host)
        keyring = kv_keyring(os.environ) if self._settings.backend == "node" else None
        backend = BACKENDS[self._settings.backend](self._settings.store(keyring, keeps=True), time.monotonic)
        self._store = PageStore(backend, self._format(mem_pool_host))

    @override
    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        """Return how many of the first pages are stored."""
        return self._store.leading(keys)

    @override
    def batch_get_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Load pages into the host pool, and return which have arrived whole."""
        pages = [self.mem_pool_host.get_dummy_flat_data_page() for _ in keys]
        there = self._store.load(keys, [_bytes_of(page) for page in pages])
        for page, whole, index in zip(pages, there, host_indices[:: self.mem_pool_host.page_size], strict=True):
            if whole:
                self.mem_pool_host.set_from_flat_data_page(int(index), page)
        return there

    @override
    def batch_set_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Store pages of the host pool, and return which are stored."""
        pool = self.mem_pool_host
        pages = [pool.get_data_page(int(index)) for index in host_indices[:: pool.page_size]]
        before = getattr(extra_info, "prefix_keys", None)
        return self._store.save(keys, [_bytes_of(page) for page in pages], before[-1] if before else "")

    def _generic(self, *_given: Any, **_named: Any) -> Any:
        raise TypeError("only the batch interface v1 is supported")

    # SGLang calls these without the v1 interface, and declares them as abstract.
    get = set = exists = batch_get = batch_set = _generic

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def _format(self, pool: Any) -> PayloadFormat:
        config = self._config
        # MLA's pages are the same on all ranks, and SGLang stores those of one.
        rank, size = (0, 1) if config.is_mla_model else (config.tp_rank, config.tp_size)
        shards = (config.pp_rank, config.pp_size, config.attn_cp_rank, config.attn_cp_size)
        page = tuple(pool.get_data_page(0, flat=False).shape)
        return PayloadFormat(
            model=Path(config.model_name).name,
            weight_revision=self._settings.weight_revision or weight_revision(Path(config.model_name)),
            kv_dtype=str(pool.dtype),
            # The adapter and the salt are in the hashes of pages.
            kv_layout=f"hicache 1 {sglang.__version__} {type(pool).__name__} {pool.layout} {page} {shards}",
            block_tokens=pool.page_size,
            tp_rank=rank,
            tp_size=size,
        )


def _bytes_of(page: Any) -> memoryview:
    # NumPy lacks the dtypes of KV caches.
    return memoryview(page.view(torch.uint8).numpy())

"""Exchange pages between host pools of SGLang through a node; run by a Python that has torch, with SGLang in its path.

The pools, the storage's base class, its factory, and the hashes are SGLang's own. Its engine does not run on a CPU.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from typing import Any
from unittest.mock import MagicMock

import torch
from transformers.utils import import_utils

if importlib.util.find_spec("torchvision") is None:
    # SGLang imports it for models with images, even where only text is used.
    import_utils.is_torchvision_available = lambda: False
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2", "torchvision.io"):
        sys.modules[name] = MagicMock(__spec__=importlib.machinery.ModuleSpec(name, None), __path__=[])
    sys.modules["torchvision.transforms.functional"] = MagicMock()
    sys.modules["torchvision.transforms.v2.functional"] = MagicMock()

from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, HiCacheStorageExtraInfo
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.storage import StorageBackendFactory
from sglang.srt.mem_cache.utils import get_hash_str

PAGE, LAYERS, HEADS, WIDTH, PAGES = 8, 3, 2, 4, 6
SHAPES = {
    "layer_first": (2, LAYERS, PAGES * PAGE, HEADS, WIDTH),
    "page_first": (2, PAGES * PAGE, LAYERS, HEADS, WIDTH),
    "page_first_direct": (2, PAGES, LAYERS, PAGE, HEADS, WIDTH),
}
HASHES = get_hash_str(list(range(PAGES * PAGE)), None, page_size=PAGE)


def pool(layout: str, dtype: torch.dtype, *, filled: bool) -> Any:
    """Return a host pool in pageable memory, without the device pool that its constructor requires."""
    made = object.__new__(MHATokenToKVPoolHost)
    made.layout, made.dtype, made.device, made.pin_memory = layout, dtype, "cpu", False
    made.page_size, made.layer_num, made.head_num, made.head_dim = PAGE, LAYERS, HEADS, WIDTH
    torch.manual_seed(3)
    made.kv_buffer = (torch.randn(SHAPES[layout]) if filled else torch.zeros(SHAPES[layout])).to(dtype)
    return made


def storage(address: str, host: Any, **changes: Any) -> Any:
    """Return the backend as SGLang creates it."""
    extra = {"backend_name": "headway", "module_path": "kvstore.connector.sglang_storage"}
    extra |= {"class_name": "HeadwayStorage", "interface_v1": 1}
    options = {"node": address, "weight_revision": "1"}
    config: dict[str, Any] = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0}
    config |= {"attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False, "model_name": "/m/tiny"}
    config |= {"is_page_first_layout": host.layout != "layer_first", "extra_config": extra | {"headway": options}}
    made = StorageBackendFactory.create_backend("dynamic", HiCacheStorageConfig(**config | changes), host)
    made.register_mem_pool_host(host)
    return made


def tokens(pages: range) -> torch.Tensor:
    return torch.cat([torch.arange(page * PAGE, (page + 1) * PAGE) for page in pages])


def check(address: str, layout: str, dtype: torch.dtype) -> None:
    """Store four pages of one engine, and load them into others places of another one."""
    source, target = pool(layout, dtype, filled=True), pool(layout, dtype, filled=False)
    one, two = storage(address, source), storage(address, target)
    assert two.batch_exists(HASHES) == 0, "pages of another layout or dtype"
    assert one.batch_set_v1(HASHES[:2], tokens(range(2)), HiCacheStorageExtraInfo(prefix_keys=[])) == [True, True]
    after = HiCacheStorageExtraInfo(prefix_keys=HASHES[:2])
    assert one.batch_set_v1(HASHES[2:4], tokens(range(2, 4)), after) == [True, True]
    assert (two.batch_exists(HASHES), two.batch_exists(HASHES[4:])) == (4, 0)
    assert two.batch_get_v1(HASHES[:5], tokens(range(1, 6))) == [True] * 4 + [False]
    for page in range(4):
        came = target.get_data_page((page + 1) * PAGE).view(torch.uint8)
        assert torch.equal(came, source.get_data_page(page * PAGE).view(torch.uint8))
    for page in (0, 5):
        assert not target.get_data_page(page * PAGE).view(torch.uint8).any()
    for rank in range(2):
        assert storage(address, target, tp_rank=rank, tp_size=2).batch_exists(HASHES) == 0
    for made in (one, two):
        made.close()


if __name__ == "__main__":
    for form in SHAPES:
        for kind in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
            check(sys.argv[1], form, kind)

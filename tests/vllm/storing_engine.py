"""An engine with Headway's KV connector and its own node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.program import ROOT
from tests.vllm.conftest import MODEL, PYTHON
from tests.vllm.real_engine import RealEngine
from tests.vllm.stored_blocks import SECRET, StoreProcess


def storing_engine(
    store: StoreProcess, log: Path, *flags: str, options: Mapping[str, Any] | None = None, **settings: Any
) -> RealEngine:
    """Return an engine that stores its blocks at a node and follows each load order; tests start it.

    `options` are of the connector, `flags` of the engine.
    """
    transfer = {
        "kv_connector": "HeadwayConnector",
        "kv_connector_module_path": "kvstore.connector.vllm_connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "node": store.address,
            "load_timeout_s": 30.0,
            "max_load_ratio": 0,
            "ask_node": True,
            "lookup_timeout_s": 30.0,
            **(options or {}),
        },
    }
    settings = {"flags": ("--kv-transfer-config", json.dumps(transfer), *flags), "PYTHONPATH": str(ROOT), **settings}
    return RealEngine(PYTHON, MODEL, log, HEADWAY_KV_SECRET=SECRET, **settings)

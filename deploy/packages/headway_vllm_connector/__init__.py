"""Headway's KV connector for vLLM and its storage backend for SGLang, classes of the module `headway_vllm_connector`.

The modules that it shares with Headway are in a private folder, whose only name is `kvstore`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# At the end: nothing of it hides a module of the engine.
sys.path.append(str(Path(__file__).parent / "_rooms"))
_MODULES = {"HeadwayConnector": "vllm_connector", "HeadwayStorage": "sglang_storage"}


def __getattr__(name: str) -> Any:
    """Return the class for the engine that is installed here."""
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"kvstore.connector.{_MODULES[name]}"), name)

"""Headway's KV connector for vLLM: `"kv_connector_module_path": "headway_vllm_connector"`.

The modules that it shares with Headway are in a private folder, whose only name is `kvstore`.
"""

from __future__ import annotations

import sys
from pathlib import Path

# At the end: nothing of it hides a module of vLLM.
sys.path.append(str(Path(__file__).parent / "_rooms"))

from kvstore.connector.vllm_connector import HeadwayConnector

__all__ = ["HeadwayConnector"]

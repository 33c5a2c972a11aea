"""A pin ended by an operator: the node receives the end in the response to a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from kvstore.node.node_report import NodeReport
from tests.kvstore.kv_blocks import a_client, address, block, key, node, on_ssd
from tests.kvstore.node.registry import registry
from tests.patience import wait_until


def all_pins(entry: dict[str, Any]) -> bytes:
    """Respond that every pin is to end."""
    pins = [{"name": item["name"], "tenant": item["tenant"]} for item in entry["report"]["pins"]]
    return json.dumps({"name": entry["name"], "revision": 3, "unpin": pins}).encode()


def test_a_report_lists_pins_without_their_content() -> None:
    with registry() as (url, entries), node(register_url=url) as manager, a_client() as client:
        client.put(address(manager), [block("a"), block("b", "a")], "context_cache", 60.0)
        client.put(address(manager), [block("c")])
        manager.stop()
        report = msgspec.convert(entries[-1]["report"], NodeReport)
        (pin,) = report.pins
        assert (pin.name, pin.tenant, pin.tokens, pin.bytes) == (key("b").hex(), "acme", 32, 2000)
        assert (pin.tenant_bytes, report.pin_quota_bytes, report.more_pins) == (2000, 1 << 30, 0)
        assert 50.0 < pin.left_s <= 60.0


def test_a_node_ends_a_pin_that_an_operator_has_ended(tmp_path: Path) -> None:
    with registry(all_pins) as (url, entries), a_client() as client:
        with node(tmp_path, register_url=url) as manager:
            wait_until(lambda: entries)
            client.put(address(manager), [block("a"), block("b", "a")], "context_cache", 3600.0)
            wait_until(lambda: on_ssd(manager, "a", "b"))
            # It reports every 5 s, and at once when a pin has ended so.
            wait_until(lambda: len(entries) > 1 and entries[-2]["report"]["pins"] and not entries[-1]["report"]["pins"])
            assert manager.store.pins() == []
        with node(tmp_path) as manager:
            assert on_ssd(manager, "a", "b")
            assert manager.store.pins() == []


def test_a_malformed_response_does_not_end_the_node() -> None:
    for answer in (b"not json", b'{"unpin": [{"name": "../..", "tenant": ""}]}', b'{"unpin": 7}'):
        with registry(lambda _, answer=answer: answer) as (url, entries), node(register_url=url) as manager:
            wait_until(lambda entries=entries: entries)
            with a_client() as client:
                client.put(address(manager), [block("a")], "context_cache", 60.0)
            assert manager.store.pins()

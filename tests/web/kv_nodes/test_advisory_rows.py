"""Advisories on the KV store page, added up over gateways, and whether they would pay."""

from __future__ import annotations

import re
from typing import Any

from django.template.loader import render_to_string

from controlplane.kv_nodes.advisory_tallies import LEAST_REQUESTS, together, verdict
from gateway.contracts.advisory import AdvisoryTallies, PoolTally, SourceTally, decode_tallies, encode_tallies
from web.kv_nodes.move_rows import advisory_table


def tallies(gateway: str, received: int = 4) -> AdvisoryTallies:
    source = SourceTally("demo", "acme", "key-1", received, {"useful": 3, "spurious": 1}, 2048, 1024, 512)
    pool = PoolTally("demo", "gated", 3, 0.3, 10, 2.0, 100, 200, 200_000, 10, 0.1)
    return AdvisoryTallies(gateway, 0.0, 1.0, [source], [pool])


def shown(table: dict[str, Any]) -> str:
    page = render_to_string("kv_nodes/advisories.html", {"advisories": table})
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_counts_of_several_gateways_add_up() -> None:
    totals = together([tallies("one"), decode_tallies(encode_tallies(tallies("other", 6)))])
    (source,), (pool,) = totals.sources, totals.pools
    assert (source.received, source.outcomes, source.bytes_moved) == (10, {"useful": 6, "spurious": 2}, 4096)
    assert (pool.advised, pool.sessions, pool.rule) == (6, 200, "gated")
    page = shown(advisory_table(totals, {"demo": "Demo"}, {"key-1": "chat backend"}))
    assert "chat backend acme Demo 10 6 75.0 % 0 0 2 0 4.00 KiB 2.00 KiB useless 0 B 1.0k" in page
    assert "Demo gated" in page
    assert "100 ms 200 ms 6 / 20" in page


def test_flood_for_unknown_sessions_is_shown() -> None:
    flood = SourceTally("", "acme", "key-1", outcomes={"unknown": 100, "shed": 900})
    totals = together([AdvisoryTallies("one", 0.0, 1.0, [flood], [])])
    page = shown(advisory_table(totals, {}, {"key-1": "chat backend"}))
    assert "sessions not known 1.0k 0 0 0 0 900 0 B 0" in page


def test_deleted_pool_has_no_row() -> None:
    assert advisory_table(together([tallies("one")]), {}, {})["pools"] == []


def test_advisories_pay_with_slow_loads_or_long_contexts() -> None:
    few = PoolTally("p", sessions=LEAST_REQUESTS - 1, requests=1000)
    assert verdict(few)[0] is None
    fast = PoolTally("p", sessions=100, requests=100, prompt_tokens=100_000, loads=10, load_s=0.1)
    assert verdict(fast)[0] is False
    slow = PoolTally("p", sessions=100, requests=100, prompt_tokens=100_000, loads=10, load_s=2.0)
    assert verdict(slow)[0] is True
    long = PoolTally("p", sessions=100, requests=100, prompt_tokens=3_000_000)
    assert verdict(long)[0] is True

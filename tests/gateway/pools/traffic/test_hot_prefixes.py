"""Work by prefix and engine over a short time, in bounded memory."""

from __future__ import annotations

from gateway.pools.traffic.hot_prefixes import MAX_KEYS, SHOWN, SPAN_S, HotPrefixes
from routing.values.decision import Decision


def decision(engine_id: str, compute_s: float, hit: int = 0) -> Decision:
    return Decision("r", "p", engine_id, 1, "dual_map", "fifo", 1, "x", 1000, hit, 0.0, compute_s, 0.0)


def test_work_is_summed_per_prefix_and_engine_busiest_first() -> None:
    prefixes = HotPrefixes()
    prefixes.dispatched(7, decision("a", 1.0, 100), 0, 1.0)
    prefixes.dispatched(7, decision("b", 2.0, 300), 50, 2.0)
    prefixes.dispatched(9, decision("a", 0.5), 0, 2.0)
    first, second = prefixes.top(3.0)
    assert (first.key, first.work_s_by_engine) == (f"{7:016x}", {"a": 1.0, "b": 2.0})
    assert (first.tokens, first.recomputed_tokens) == (300, 50)
    assert second.key == f"{9:016x}"


def test_work_is_forgotten_after_two_spans() -> None:
    prefixes = HotPrefixes()
    prefixes.dispatched(7, decision("a", 1.0), 0, 100.0)
    assert prefixes.top(100.0 + SPAN_S)[0].work_s_by_engine == {"a": 1.0}
    prefixes.dispatched(8, decision("a", 1.0), 0, 100.0 + SPAN_S + 1)
    assert len(prefixes.top(100.0 + SPAN_S + 2)) == 2
    assert [prefix.key for prefix in prefixes.top(100.0 + 2 * SPAN_S + 1)] == [f"{8:016x}"]
    assert prefixes.top(500.0) == ()


def test_stored_and_displayed_keys_are_bounded() -> None:
    prefixes = HotPrefixes()
    for key in range(MAX_KEYS + 100):
        prefixes.dispatched(key, decision("a", 1.0), 0, 1.0)
    prefixes.dispatched(5, decision("a", 9.0), 0, 1.0)
    top = prefixes.top(1.0)
    assert (len(top), top[0].key) == (SHOWN, f"{5:016x}")

from simulator.event_log import KeptEventLog


def test_digests_are_equal_for_equal_events_only() -> None:
    def log(at_s: float, kind: str = "granted") -> str:
        kept = KeptEventLog()
        kept.note(0.0, "arrives", "request-1", "")
        kept.note(at_s, kind, "request-1", "e-001")
        return kept.digest()

    assert log(0.3) == log(0.3)
    assert len({log(0.3), log(0.1 + 0.2), log(0.3, "waits")}) == 3

from bench.kv.live import Window, documents, mooncake_figures, prefetch_figures, replica_figures, targets_of


def test_verdicts_use_the_medians_of_the_windows() -> None:
    windows = [Window(1.0, 2.0, 1.0, 1.5), Window(1.1, 1.5, 1.0, 1.5), Window(9.0, 1.0, 1.0, 1.5)]
    figures = mooncake_figures(windows)
    assert (figures["live_over_predicted"], round(figures["loads_over_none"], 3)) == (1.1, 0.733)
    assert all(target.holds for target in targets_of(figures).values())
    far = targets_of(mooncake_figures([Window(1.3, 1.0, 1.0, 1.5)]))
    assert [name for name, missed in far.items() if not missed.holds] == [
        "live_over_predicted <= 1.15",
        "loads_over_none < 1.0",
    ]


def test_target_fails_if_no_replica_was_made() -> None:
    targets = targets_of(replica_figures([(0.5, 1.0, 0.0)]))
    assert not targets["replicas_made > 0.0"].holds


def test_target_fails_if_prefetch_reports_more_than_was_sent() -> None:
    assert all(target.holds for target in targets_of(prefetch_figures([(95.0, 100.0, 1.0, 1.0)])).values())
    too_much = targets_of(prefetch_figures([(101.0, 100.0, 1.0, 1.0)]))
    assert not too_much["prefetch_said_over_sent <= 1.0"].holds


def test_windows_share_no_document() -> None:
    one, other = (
        {block for row in documents(seed, requests=50, documents=9, blocks=4, gap_s=0.1) for block in row.hash_ids}
        for seed in (1, 2)
    )
    assert not one & other

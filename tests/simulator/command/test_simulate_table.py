from simulator.command.simulate_table import render


def test_each_report_is_a_row_and_empty_figures_get_no_column() -> None:
    table = render([
        {"placement": "least_cost", "order": "fifo", "qps": 10.0, "slo_share": 0.987, "ttft_p50_s": None},
        {"placement": "random", "order": "late_last", "qps": 8.0, "slo_share": 1.0, "ttft_p50_s": 1.234},
    ])  # fmt: skip
    head, first, second = table.splitlines()
    assert "goodput" not in head
    assert first.split() == ["least_cost", "+", "fifo", "10.0", "98.7%", "–"]
    assert second.split() == ["random", "+", "late_last", "8.0", "100.0%", "1.23", "s"]
    assert len(head) == len(first) == len(second)

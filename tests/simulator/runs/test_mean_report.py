from simulator.runs.mean_report import mean_of


def test_one_report_equals_its_mean() -> None:
    report = {"slo_share": 0.5}
    assert mean_of([report]) is report


def test_numeric_fields_are_averaged_and_other_differences_omitted() -> None:
    one = {"placement": "a", "slo_share": 0.5, "rejected": 1, "ttft_p50_s": None, "detail": {"seed": 0}}
    other = {"placement": "a", "slo_share": 1.0, "rejected": 2, "ttft_p50_s": 1.0, "detail": {"seed": 1}}
    mean = mean_of([one, other])
    assert mean == {"placement": "a", "slo_share": 0.75, "rejected": 1.5, "ttft_p50_s": None, "seeds": [one, other]}


def test_equal_integers_stay_integers() -> None:
    assert isinstance(mean_of([{"engines": 8}, {"engines": 8}])["engines"], int)

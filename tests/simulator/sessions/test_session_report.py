import pytest

from simulator.sessions.session_report import SessionReport, report_of
from simulator.sessions.turn import Session, Turn


def answered(arrived_s: float, first_token_s: float | None, finished_s: float | None, answer: int = 11) -> Turn:
    turn = Turn(Session(1), 10, answer, arrived_s)
    turn.first_token_s, turn.finished_s = first_token_s, finished_s
    return turn


def report(turns: list[Turn], samples: list[list[int]] | None = None, now: float = 100.0) -> SessionReport:
    return report_of(
        "ours", "chat", 8, 1, turns, samples or [], samples or [], now=now, requests_per_s=2.0, wasted_bytes=5.0
    )  # fmt: skip


def test_times_are_means_over_requests() -> None:
    figures = report([answered(0.0, 1.0, 2.1), answered(10.0, 13.0, 14.1)])
    assert figures.norm_ms_per_token == pytest.approx(1e3 * (2.1 / 11 + 4.1 / 11) / 2)
    assert figures.tpot_ms == pytest.approx(110)
    assert figures.ttft_mean_s == pytest.approx(2.0)


def test_an_unanswered_request_counts_with_its_waiting_time() -> None:
    figures = report([answered(90.0, None, None)])
    assert figures.ttft_mean_s == pytest.approx(10.0)
    assert figures.norm_ms_per_token == pytest.approx(1e4 / 11)
    assert figures.tpot_ms == 0.0


def test_a_response_of_one_token_has_no_tpot() -> None:
    assert report([answered(0.0, 1.0, 1.0, answer=1)]).tpot_ms == 0.0


def test_imbalance_is_measured_over_windows_of_thirty_samples() -> None:
    moments = [[200, 0] if number % 2 else [0, 200] for number in range(30)]
    assert report([], moments).max_over_mean_kv == pytest.approx(1.0)
    assert report([], [[300, 100]] * 30 + [[100, 100]] * 30).max_over_mean_kv == pytest.approx(1.25)


def test_a_run_without_requests_has_figures() -> None:
    assert report([]).ttft_p99_s == 0.0

"""`python -m gateway`: the environment variables that it reads and rejects."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import __main__ as command
from gateway.base.settings import EngineLimits
from gateway.server.http.edge import EdgeSettings

LIMITS = ("HEADWAY_PROBE_TIMEOUT_S", "HEADWAY_HANG_LIMIT_S", "HEADWAY_ANSWER_LIMIT_S")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[command.GatewayProcess]:
    """Return the processes that the command would have run."""
    processes: list[command.GatewayProcess] = []

    def run(process: command.GatewayProcess) -> int:
        processes.append(process)
        return 0

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command.logging.config, "dictConfig", lambda _settings: None)
    monkeypatch.setenv("HEADWAY_FLEET_SECRET", "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv")
    monkeypatch.setenv("REDIS_URL", "")
    monkeypatch.setattr("sys.argv", ["gateway", "--state-dir", str(tmp_path)])
    return processes


def test_engine_limits_are_settings(started: list[command.GatewayProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main() == 0
    for name, value in zip(LIMITS, ("7", "900", "7200"), strict=True):
        monkeypatch.setenv(name, value)
    assert command.main() == 0
    assert [item.settings.limits for item in started] == [
        EngineLimits(),
        EngineLimits(probe_timeout_s=7.0, hang_limit_s=900.0, answer_limit_s=7200.0),
    ]


def test_sizes_idle_time_and_origins_are_settings(
    started: list[command.GatewayProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command.main() == 0
    monkeypatch.setenv("HEADWAY_PROXY_BODY_BYTES", "268435456")
    monkeypatch.setenv("HEADWAY_CLIENT_IDLE_S", "30")
    monkeypatch.setenv("HEADWAY_CORS_ORIGINS", "https://a.example, https://b.example")
    assert command.main() == 0
    assert [item.edge for item in started] == [
        EdgeSettings(),
        EdgeSettings(proxy_body_limit=256 << 20, cors_origins=("https://a.example", "https://b.example")),
    ]
    assert [item.client_idle_s for item in started] == [3900, 30]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("HEADWAY_PROXY_BODY_BYTES", "268435457", "not a whole number from 1024 to 268435456"),
        ("HEADWAY_CLIENT_IDLE_S", "0", "not a whole number from 1 to 999999"),
        ("HEADWAY_CORS_ORIGINS", "a.example", "'a.example' is not an origin"),
        ("HEADWAY_ENGINE_CA", "/nowhere.pem", "HEADWAY_ENGINE_CA='/nowhere.pem' is no readable PEM file"),
    ],
)
def test_invalid_values_are_rejected_by_name(
    started: list[command.GatewayProcess],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    expected: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert command.main() == 2
    assert started == []
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "1000000", "never"])
def test_a_limit_that_ends_every_request_or_none_is_rejected(
    started: list[command.GatewayProcess],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert command.main() == 2
    assert started == []
    assert f"{name}={value!r} is not a whole number from 1 to 999999." in capsys.readouterr().err

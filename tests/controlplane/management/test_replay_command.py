"""`manage.py replay` adds the demo's key and model for local targets only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.management.replay_command import _index_of_trace, lend_key, with_model, with_recording
from controlplane.project.first_run.secrets import secrets_of
from controlplane.request_log.models.segment import Segment
from controlplane.request_log.recordings.kept_traces import recording_store
from simulator.workloads.trace import read_trace
from tests.controlplane.trials.whatif.installation import keep, recorded

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = "HEADWAY_API_KEY"


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "")  # so that the end of the test removes the lent key
    return secrets_of(tmp_path).api_key


@pytest.mark.parametrize(
    "argv",
    [[], ["t.jsonl", "--target", "http://127.0.0.1:9"], ["--target=http://localhost"], ["--target", "http://[::1]:1"]],
)
def test_local_target_gets_the_first_key_and_the_demo_model(key: str, argv: list[str]) -> None:
    lend_key(argv)
    assert os.environ[VARIABLE] == key
    assert with_model(argv) == [*argv, "--model", "demo-8b"]


@pytest.mark.parametrize("target", ["http://10.0.0.1", "https://gateway.example", "http://127.0.0.1.evil.example"])
def test_remote_target_gets_neither_key_nor_model(key: str, target: str) -> None:
    argv = ["--target", target]
    lend_key(argv)
    assert os.environ[VARIABLE] == ""
    assert with_model(argv) == argv


def test_options_of_the_caller_are_kept(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "hw_mine")
    lend_key([])
    assert os.environ[VARIABLE] == "hw_mine"
    assert with_model(["--model=m"]) == ["--model=m"]


def test_key_on_the_command_line_needs_no_secrets_file(key: str) -> None:
    lend_key(["--api-key", "hw_other"])
    assert os.environ[VARIABLE] == ""


def test_secrets_file_readable_by_others_is_not_used(key: str, tmp_path: Path) -> None:
    (tmp_path / "first_run.json").chmod(0o644)
    with pytest.raises(SystemExit, match="chmod 600"):
        lend_key([])


@pytest.mark.parametrize("command", ["simengine", "replay"])
def test_light_commands_start_without_loading_django(command: str) -> None:
    program = (
        "import sys, manage\n"
        "try: manage.main(['manage.py', sys.argv[1], '--help'])\n"
        "except SystemExit as end: assert end.code in (None, 0), end\n"
        "loaded = {'django.db', 'django.apps', 'celery', 'channels'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program, command], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("argv", "index"),
    [(["7"], 0), (["--qps", "7", "7"], 2), (["7", "--qps", "7"], 0), (["--qps", "7"], None), ([], None), (["t.gz"], 0)],
)
def test_trace_argument_is_distinguished_from_option_values(argv: list[str], index: int | None) -> None:
    assert _index_of_trace(argv) == index


@pytest.mark.django_db
def test_recording_is_replayed_by_its_id(pool: Pool) -> None:
    recording = keep(pool, recorded(60))
    path = recording_store().path(recording.key)
    assert with_recording(["--qps", "5", str(recording.pk), "--loop"]) == ["--qps", "5", str(path), "--loop"]
    assert len(read_trace(path)) == 60
    with pytest.raises(SystemExit, match="no recording 999"):
        with_recording(["999"])
    path.unlink()
    assert with_recording([str(recording.pk)]) == [str(path)]
    path.unlink()
    Segment.objects.all().delete()
    with pytest.raises(SystemExit, match="was deleted"):
        with_recording([str(recording.pk)])
    assert with_recording(["trace.jsonl"]) == ["trace.jsonl"]

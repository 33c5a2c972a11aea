from __future__ import annotations

import argparse
from collections import Counter

import pytest

from simulator.replay.replay_options import ReplayOptions, add_arguments, options_from, row_limit


def _parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(argv)


def test_the_documented_arguments_are_parsed() -> None:
    parsed = _parse(
        "t.jsonl", "--target", "http://host:1/v1/", "--speed", "4", "--max-input", "8192", "--max-rows", "10"
    )
    options = options_from(parsed)
    assert (options.target, options.speed, options.max_input) == ("http://host:1", 4.0, 8192)
    assert (parsed.trace, row_limit(parsed)) == ("t.jsonl", 10)


def test_the_key_comes_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_API_KEY", "hw_env")
    assert options_from(_parse()).api_key == "hw_env"
    assert options_from(_parse("--api-key", "hw_arg")).api_key == "hw_arg"


def test_a_generated_trace_is_bounded_and_a_file_is_not() -> None:
    assert row_limit(_parse()) == 4000
    assert row_limit(_parse("t.jsonl")) is None


def test_chat_is_the_default_endpoint() -> None:
    assert options_from(_parse()).chat
    assert not options_from(_parse("--endpoint", "completions")).chat


def test_defaults_of_options_and_command_agree() -> None:
    parsed = options_from(_parse("--api-key", ""))
    assert parsed == ReplayOptions(target=parsed.target)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--target", "ftp://host"],
        ["--target", "host:8000"],
        ["--speed", "0"],
        ["--speed", "inf"],
        ["--max-input", "0"],
        ["--endpoint", "embeddings"],
    ],
)
def test_an_invalid_value_is_rejected(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(*wrong)
    assert wrong[0] in capsys.readouterr().err


def test_several_keys_share_the_sessions_by_their_parts() -> None:
    options = options_from(_parse("--api-key", "a,a,a,b"))
    parts = Counter(options.key_of(f"s{number}") for number in range(1000))
    assert parts["a"] + parts["b"] == 1000
    assert 700 < parts["a"] < 800
    assert options.key_of("s7") == options.key_of("s7")
    assert options_from(_parse("--api-key", "one")).key_of(None) == "one"

"""The options of a replay (target, pace, limits) and its command line."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from urllib.parse import urlsplit
from zlib import crc32

import msgspec

GENERATED = "generated"
_KEY_VARIABLE = "HEADWAY_API_KEY"
_DEFAULT_ROWS = 4000


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one replay, independent of where its rows come from."""

    target: str
    """Base URL of an OpenAI-compatible server, without /v1."""
    model: str = "simulated"
    api_key: str = ""
    """One key, or several that share the sessions, separated by commas. A key named n times gets n parts."""
    speed: float = 1.0
    """Trace seconds per real second, after `qps`."""
    qps: float | None = None
    """Mean arrival rate of the rows; timestamps are scaled linearly to reach it."""
    max_input: int | None = None
    """Maximum prompt length in tokens; longer prompts are cut."""
    loop: bool = False
    """Whether to start again at the end, with texts that share nothing with the previous pass."""
    endless: bool = False
    """With `loop`: whether the rows cover two passes, so that sessions continue from one to the next. Otherwise all
    end at once, and no prompt of the next pass finds a cache.
    """
    chat: bool = True
    """Whether to call /v1/chat/completions; False for /v1/completions."""
    max_in_flight: int = 512
    retry: int = 0
    """How often a rejected request (429, 503) is sent again."""
    wait_s: float = 60.0
    """Seconds to wait for the target to become available."""
    timeout_s: float = 600.0
    """Request timeout in seconds."""
    pace_file: Path | None = None
    """If set, the replay slows down while the target responds slowly, and writes its rate to this file."""

    def key_of(self, session: str | int | None) -> str:
        """Return the API key of a session."""
        keys = self.api_key.split(",")
        return keys[crc32(str(session).encode()) % len(keys)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the replay's arguments to `parser` (an argparse or a Django command's parser)."""
    add = parser.add_argument
    add("trace", nargs="?", default=GENERATED, help="Mooncake JSONL trace (also .gz), or 'generated' (the default)")
    add("--target", type=_url, default="http://127.0.0.1:8000", help="base URL of the server, without /v1")
    add(
        "--api-key",
        default=None,
        help=f"bearer token, or several with commas (default: ${_KEY_VARIABLE})",
    )
    add("--model", default="simulated", help="model name in requests")
    add("--speed", type=_above_zero, default=1.0, help="trace seconds per real second")
    add("--qps", type=_above_zero, default=None, help="mean arrival rate; scales the timestamps")
    add("--max-input", type=_positive, default=None, help="maximum prompt tokens; longer prompts are cut")
    add("--max-rows", type=_positive, default=None, help=f"number of rows, from the first (generated: {_DEFAULT_ROWS})")
    add("--seed", type=int, default=0, help="seed of the generated trace")
    add("--loop", action="store_true", help="restart at the end, until stopped")
    add("--endpoint", choices=("chat", "completions"), default="chat", help="OpenAI endpoint to call")
    add("--max-in-flight", type=_positive, default=512, help="maximum number of concurrent requests")
    add("--retry", type=int, default=0, help="maximum retries of a rejected request (429, 503)")
    add("--wait", type=float, default=60.0, help="seconds to wait for the target to become available")
    add("--timeout", type=_above_zero, default=600.0, help="request timeout, seconds")
    add("--json", type=Path, default=None, help="write the summary to this file as JSON")
    add("--pace-file", type=Path, default=None, help="with --qps: slow down with the target, and write the rate here")
    add("--parent-pid", type=int, default=None, help="exit when this process ends")


def options_from(arguments: argparse.Namespace) -> ReplayOptions:
    """Return the options from parsed arguments; the API key can come from the environment."""
    key = arguments.api_key if arguments.api_key is not None else os.environ.get(_KEY_VARIABLE, "")
    return ReplayOptions(
        target=arguments.target,
        model=arguments.model,
        api_key=key,
        speed=arguments.speed,
        qps=arguments.qps,
        max_input=arguments.max_input,
        loop=arguments.loop,
        endless=arguments.loop and arguments.trace == GENERATED,
        chat=arguments.endpoint == "chat",
        max_in_flight=arguments.max_in_flight,
        retry=max(0, arguments.retry),
        wait_s=arguments.wait,
        timeout_s=arguments.timeout,
        pace_file=arguments.pace_file,
    )


def row_limit(arguments: argparse.Namespace) -> int | None:
    """Return how many rows to replay; None for all rows of the file."""
    if arguments.max_rows is None and arguments.trace == GENERATED:
        return _DEFAULT_ROWS
    limit: int | None = arguments.max_rows
    return limit


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is no http:// or https:// URL")
    # OpenAI's own clients are given the address with /v1.
    return text.rstrip("/").removesuffix("/v1")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, not {value}")
    return value

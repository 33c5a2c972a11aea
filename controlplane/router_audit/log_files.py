"""Reads the files of a log by the table of formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from controlplane.router_audit.readers.csv_log import CsvLog
from controlplane.router_audit.readers.dynamo_log import dynamo_request
from controlplane.router_audit.readers.envoy_log import envoy_request
from controlplane.router_audit.readers.litellm_log import litellm_request
from controlplane.router_audit.readers.llm_d_log import LlmDLog
from controlplane.router_audit.readers.mooncake_log import mooncake_request
from controlplane.router_audit.readers.nginx_log import nginx_request
from controlplane.router_audit.readers.sglang_log import SglangLog
from controlplane.router_audit.readers.vllm_router_log import vllm_router_request
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, RequestLog, UnusableLineError
from simulator.workloads.trace import TraceError, iterate_lines

LineReader = Callable[[bytes], LoggedRequest]
"""Returns what one line states; raises UnusableLineError or OtherLineError."""

FORMATS: dict[str, Callable[[], LineReader]] = {
    "mooncake": lambda: mooncake_request,
    "dynamo": lambda: dynamo_request,
    "sglang": SglangLog,
    "llm-d": LlmDLog,
    "vllm-router": lambda: vllm_router_request,
    "nginx": lambda: nginx_request,
    "envoy": lambda: envoy_request,
    "litellm": lambda: litellm_request,
    "csv": CsvLog,
}
"""Name of a format → reader of one of its files."""


class UnreadableLogError(ValueError):
    """The log has no usable request. The message states why and what to do."""


def read_log(log: RequestLog, path: Path, file_format: str) -> None:
    """Add a file, or all files of a directory in order of their names, to the log; raise UnreadableLogError."""
    files = sorted(item for item in path.iterdir() if item.is_file()) if path.is_dir() else [path]
    if not files:
        raise UnreadableLogError(f"{path}: the directory has no files")
    for file in files:
        _read_file(log, file, FORMATS[file_format]())


def _read_file(log: RequestLog, file: Path, read: LineReader) -> None:
    try:
        # A name without its directory, unless another file has it.
        name = str(file) if file.name in log.files else file.name
        log.files.append(name)
        for path_and_number, line in iterate_lines(file):
            where = name + path_and_number.removeprefix(str(file))
            log.lines += 1
            try:
                request = read(line)
                request.check()
                log.add(where, request)
            except UnusableLineError as error:
                log.reject(where, str(error))
            except OtherLineError as error:
                log.skip(str(error))
    except TraceError as error:
        raise UnreadableLogError(str(error)) from error

"""`manage.py audit-router`: audits another router from its log, and writes one HTML report. Prompts are not stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tqdm import tqdm

from controlplane.router_audit.audit import audited
from controlplane.router_audit.audited_fleet import audited_fleet
from controlplane.router_audit.engine_fit import ENGINE_MODELS, fitted_engine
from controlplane.router_audit.log_files import FORMATS, UnreadableLogError, read_log
from controlplane.router_audit.rebuild import Assumptions
from controlplane.router_audit.report import AuditSource, report_html, verdict
from planning.router_audit.log_gaps import log_gaps
from planning.router_audit.logged_request import BLOCK_TOKENS, LoggedRequest, RequestLog
from routing.registry import CENTRAL_PLACEMENT
from routing.values.counted import count
from simulator.baselines.registry import PLACEMENTS
from simulator.command.option_values import OptionValues
from simulator.engine_models.engine_profile import (
    EngineProfile,
    UnreadableProfileError,
    profile_named,
    profile_names,
    read_profile,
)

RULES = sorted(set(PLACEMENTS) - {CENTRAL_PLACEMENT})


def main(argv: Sequence[str], prog: str = "audit-router") -> int:
    """Run the command line and return the exit status: 0, or 2 if the log or an option is unusable."""
    options = parser(prog).parse_args(argv)
    try:
        text, words = _report(options)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, "utf-8")
    except (UnreadableLogError, UnreadableProfileError, OSError) as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 2
    sys.stdout.write(f"{words}\nReport: {options.out}\n")
    return 0


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=prog, description=__doc__)
    add, default = made.add_argument, "(default: %(default)s)"
    add("--log", type=Path, action="append", required=True, metavar="FILE|DIR",
        help="Log of the audited router. Repeat it for logs of the same requests, joined by their ids.")  # fmt: skip
    add("--format", choices=FORMATS, action="append", required=True, help="Format of the --log at the same position.")
    add("--engines", required=True, metavar="N|FILE",
        help="Number of engines, or a file: one engine a line, with further names after its name.")  # fmt: skip
    add("--out", type=Path, default=Path("router-audit.html"), help=f"The report {default}.")
    add("--profile", metavar="NAME|FILE",
        help=f"Engine profile: {', '.join(profile_names())}, or a file (default: by the log's times).")  # fmt: skip
    add("--rule", choices=RULES, default="round_robin",
        help=f"Rule that places requests whose engine is not logged {default}.")  # fmt: skip
    add("--slo", default="5", metavar="S", help=f"TTFT objective in seconds {default}.")
    add("--requests", default="50000", metavar="N", help=f"Audit only the first N requests {default}.")
    return made


def _report(options: argparse.Namespace) -> tuple[str, str]:
    """Return the report and its verdict; raise UnreadableLogError or UnreadableProfileError."""
    values = OptionValues(options)
    slo_s, most = values.above_zero("slo"), values.whole("requests", 1)
    if len(options.log) != len(options.format):
        values.problem(f"{len(options.log)} × --log, but {len(options.format)} × --format; give one for each")
    if values.problems or slo_s is None:
        raise UnreadableLogError("; ".join(values.problems))
    profile = _profile(options.profile)
    start = Assumptions(name="closest to the log", profile=profile, engine_model=ENGINE_MODELS[0], ttft_slo_s=slo_s)
    log, requests = _requests(list(zip(options.log, options.format, strict=True)))
    kept = requests[:most]
    fleet = audited_fleet(kept, options.engines)
    # disable=None shows the bar on a terminal only.
    with tqdm(unit="run", desc="audit", disable=None) as bar:
        fit = fitted_engine(fleet, start, options.rule, given=options.profile is not None, on_step=bar.update)
        result = audited(fleet, fit, options.rule, bar.update)
    source = AuditSource(
        log=log,
        files=tuple(f"{path.name} ({name})" for path, name in zip(options.log, options.format, strict=True)),
        gaps=log_gaps(kept, options.rule),
        requests=len(kept),
        span_s=(kept[-1].arrived_s or 0.0) - (kept[0].arrived_s or 0.0),
        rule="" if all(request.engine for request in kept) else options.rule,
        left_out=len(requests) - len(kept),
    )
    return report_html(source, result), verdict(result)


def _requests(logs: Sequence[tuple[Path, str]]) -> tuple[RequestLog, list[LoggedRequest]]:
    """Return the log and its requests in order of arrival; raise UnreadableLogError if there are none."""
    log = RequestLog()
    for path, file_format in logs:
        read_log(log, path, file_format)
    requests = log.requests()
    if not requests:
        problems = [f"{where}: {reason}" for where, reason in log.problems[:3]]
        problems += [f"{lines:,} × {what}" for what, lines in log.others.items()]
        raise UnreadableLogError(f"no usable request in {count(log.lines, 'line')}: {'; '.join(problems)}")
    return log, requests


def _profile(given: str | None) -> EngineProfile:
    """Return the named profile with a log's blocks, or the reference model, which recomputes the last block here."""
    if given is None:
        return EngineProfile(recompute_last_block=True)
    profile = profile_named(given) if given in profile_names() else read_profile(Path(given))
    # Names in logs are for blocks of that size, whatever the engines' own; the cache keeps its size.
    blocks = max(1, profile.num_blocks * profile.block_tokens // BLOCK_TOKENS)
    return msgspec.structs.replace(profile, block_tokens=BLOCK_TOKENS, num_blocks=blocks)

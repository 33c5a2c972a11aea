"""May this process open as many connections as a fleet needs?"""

from __future__ import annotations

import resource

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from routing.values.counted import count

_LEAST, _GOOD = 1024, 4096


def look(_installation: Installation, *, limit: int | None = None) -> list[Finding]:
    """Compare the limit of open files with two descriptors per request that is relayed."""
    most = limit if limit is not None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < 0 or most >= _GOOD:
        return [ok(f"{'Any number of' if most < 0 else most} open files are allowed.")]
    do = f"Raise the limit: `ulimit -n {4 * _GOOD}`, or LimitNOFILE={4 * _GOOD} in the systemd unit."
    if most < _LEAST:
        return [problem(f"Only {most} open files are allowed, too few for engines, clients and sockets.", do)]
    return [warning(f"{most} open files are allowed: about {count(most // 2, 'request')} at a time.", do)]

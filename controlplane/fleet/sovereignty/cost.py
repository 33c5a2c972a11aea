"""The cost of sovereignty rules, simulated in a child process for the installation's regions."""

from __future__ import annotations

import subprocess
import sys
import threading

import msgspec
from django.db.models import Count

from controlplane.fleet.models.engine import Engine
from controlplane.platform.conflict import ConflictError
from routing.regions.sovereignty import SovereigntyDocument
from routing.values.prepared_struct import prepared
from simulator.regions.sovereignty_cost import MOST_REGIONS, CostQuestion, SovereigntyCost

LONGEST_S = 120.0

_running = threading.Lock()


class CostUnknownError(ConflictError):
    """The cost cannot be simulated now. The message explains why."""


def sovereignty_cost(document: SovereigntyDocument) -> SovereigntyCost:
    """Simulate the rules with the registered engines, one simulation at a time. Raises CostUnknownError."""
    engines = dict(
        Engine.objects.values_list("pool__region__slug").annotate(count=Count("pk")).order_by("pool__region__slug")
    )
    if not 2 <= len(engines) <= MOST_REGIONS:
        raise CostUnknownError(
            f"The simulation takes 2 to {MOST_REGIONS} regions with engines; there are {len(engines)}."
        )
    if not _running.acquire(blocking=False):
        raise CostUnknownError("Another simulation of rules is running; try again in a minute.")
    try:
        return _simulated(CostQuestion(document, engines))
    finally:
        _running.release()


def _simulated(question: CostQuestion) -> SovereigntyCost:
    command = [sys.executable, "-m", "simulator.regions.sovereignty_cost"]
    try:
        child = subprocess.run(  # noqa: S603  # our own interpreter and module
            command, input=msgspec.json.encode(question), stdout=subprocess.PIPE, timeout=LONGEST_S, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise CostUnknownError(f"The simulation took over {LONGEST_S:.0f} s; this machine is busy.") from error
    except subprocess.CalledProcessError as error:
        raise CostUnknownError("The simulation failed; the server's log has the reason.") from error
    return msgspec.json.decode(child.stdout, type=prepared(SovereigntyCost))

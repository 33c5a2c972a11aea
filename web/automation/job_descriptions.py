"""What each job is called, what it does, and when it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobDescription:
    """A job in words."""

    title: str
    does: str = ""
    when: str = ""
    """Completes "Runs …"."""


def job_description(job: str) -> JobDescription:
    """Return a job in words; only a title if the job is not listed."""
    return JOB_DESCRIPTIONS.get(job) or JobDescription(job.replace("_", " ").capitalize())


_ON_REQUEST = "when a person starts one"
JOB_DESCRIPTIONS = {
    "probe": JobDescription("Probe engines", "Checks that each engine answers, and reads its load.", "every 0.5 s"),
    "preflight": JobDescription(
        "Check engines before they serve", "Tests a new engine's address, model, and block size.", "once per new engine"
    ),
    "discovery": JobDescription("Discover engines", "Finds engines in the configured sources.", "every 5 s"),
    "rollup": JobDescription("Store charts", "Stores the samples that the charts of the past show.", "every 10 s"),
    "requests": JobDescription("Store requests", "Writes ended requests to the request log.", "every second"),
    "usage": JobDescription("Count usage", "Adds tokens to the ledger, and updates budgets.", "every second"),
    "incidents": JobDescription(
        "Detect incidents", "Opens, updates, and closes incidents.", "every 2 s with a symptom"
    ),
    "notify": JobDescription("Send notifications", "Sends messages about incidents to channels.", "every 2 s"),
    "engine_health": JobDescription(
        "Judge engine health", "Quarantines engines that fail, and returns them to service.", "every second"
    ),
    "engine_actions": JobDescription(
        "Carry out actions", "Starts, drains, and stops engines as the automations planned.", "every 0.5 s with actions"
    ),
    "scaling": JobDescription("Scale pools", "Plans how many engines each pool needs.", "every 5 s"),
    "prefill_decode": JobDescription(
        "Balance prefill and decode", "Plans how many engines prefill and how many decode.", "every 5 s"
    ),
    "rebalance": JobDescription("Rebalance load", "Spreads hot prefixes over more engines.", "every second"),
    "canary": JobDescription("Evaluate canaries", "Compares each canary with its baseline.", "every 2 s with a canary"),
    "holdback": JobDescription(
        "Compare with the holdback", "Compares live policies with the simple rule.", "every 2 s with a holdback"
    ),
    "whatif": JobDescription("What-if", "Replays recorded requests under another policy.", _ON_REQUEST),
    "sovereignty_cost": JobDescription("Simulate sovereignty rules", "Estimates what each rule costs.", _ON_REQUEST),
    "call_graph": JobDescription("Learn the call graph", "Learns which agents call which.", _ON_REQUEST),
    "capacity": JobDescription("Measure demand", "Reads each region's demand from the request log.", "every 15 min"),
    "advice": JobDescription("Search for better policies", "Simulates other policies on recorded days.", "once a day"),
    "advice_autopilot": JobDescription("Advice autopilot", "Takes the next step of each proposal.", "every 5 s"),
    "savings": JobDescription("Prove savings", "Replays each pool's day under other rules.", "after each day, UTC"),
}

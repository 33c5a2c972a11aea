"""The Celery application, which wakes jobs. Leases decide whether a job runs."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
# Celery would run all of Django's checks, which load every page; servers run their own.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

from controlplane.platform.bus import broker_url
from controlplane.platform.jobs.wake import job_queues

app = Celery("headway")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.broker_url = broker_url()
app.conf.imports = [
    "controlplane.fleet.jobs.probe",
    "controlplane.project.housekeeping",
    "controlplane.publication.refresh_job",
    "controlplane.access.key_usage",
    "controlplane.access.stored_revocations",
    "controlplane.fleet.learned_costs",
    "controlplane.fleet.preflight.job",
    "controlplane.history.rollups",
    "controlplane.incidents.job",
    "controlplane.notifications.job",
    "controlplane.request_log.job",
    "controlplane.trials.whatif.job",
    "controlplane.trials.shadow.job",
    "controlplane.automation.jobs.engine_health",
    "controlplane.automation.jobs.scaling",
    "controlplane.automation.jobs.prefill_decode",
    "controlplane.automation.jobs.rebalance",
    "controlplane.automation.jobs.engine_actions",
    "controlplane.fleet.engine_addresses",
    "controlplane.fleet.discovery.job",
    "controlplane.kv_nodes.silence",
    "controlplane.kv_nodes.moves",
    "controlplane.trials.canary.job",
    "controlplane.trials.canary.holdback",
    "controlplane.policies.scheduled_publishes",
    "controlplane.usage.job",
    "controlplane.capacity.job",
    "controlplane.advice.search_job",
    "controlplane.advice.autopilot_job",
    "controlplane.fleet.sovereignty.cost",
    "controlplane.savings.job",
    "controlplane.request_log.call_graph",
]
app.conf.task_default_queue = job_queues("jobs")[0]
app.conf.task_routes = {"controlplane.probe": {"queue": job_queues("probe")[0]}}
# Installations that share a server share no key: queues, and their unacknowledged messages, are named after secrets.
app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    **{name: job_queues(name)[0] for name in ("unacked_key", "unacked_index_key", "unacked_mutex_key")},
}
SCHEDULE_S = {
    "probe": 0.5,
    "refresh_snapshot": 1.0,
    "preflight": 1.0,
    "engine_health": 1.0,
    "engine_actions": 0.5,
    "engine_addresses": 10.0,
    "discovery": 5.0,
    # Changes in a cluster bring it forward.
    "watched_discovery": 5.0,
    "kv_node_silence": 5.0,
    "kv_moves": 2.0,
    "rebalance": 1.0,
    "canary": 2.0,
    "holdback": 2.0,
    # Their rounds are further apart, but a person's change brings the next one forward.
    "scaling": 1.0,
    "prefill_decode": 1.0,
    "store_revocations": 5.0,
    "store_key_usage": 5.0,
    "store_learned_costs": 15.0,
    "rollup": 5.0,
    "incidents": 2.0,
    "notify": 2.0,
    "store_requests": 1.0,
    "store_usage": 1.0,
    "shadows": 2.0,
    "whatif": 1.0,
    "sovereignty_cost": 1.0,
    "call_graph": 1.0,
    "capacity": 5.0,
    "advice": 5.0,
    "advice_autopilot": 5.0,
    "savings": 5.0,
    "scheduled_publish": 2.0,
    "housekeeping": 60.0,
}
"""Job → seconds between its wake-ups."""
EXPIRES_S = 10.0
"""Age at which a wake-up that no worker took is dropped: the next one says the same. A shorter one would drop every
wake-up on a machine so busy that its worker is seconds behind.
"""
app.conf.beat_schedule = {
    job: {"task": f"controlplane.{job}", "schedule": every_s, "options": {"expires": max(every_s, EXPIRES_S)}}
    for job, every_s in SCHEDULE_S.items()
}

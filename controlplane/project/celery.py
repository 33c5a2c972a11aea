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
]
app.conf.task_default_queue = job_queues("jobs")[0]
app.conf.task_routes = {"controlplane.probe": {"queue": job_queues("probe")[0]}}
# Installations that share a server share no key: queues, and their unacknowledged messages, are named after secrets.
app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    **{name: job_queues(name)[0] for name in ("unacked_key", "unacked_index_key", "unacked_mutex_key")},
}
app.conf.beat_schedule = {
    # A wake-up that no worker took in time is dropped: the next one says the same.
    "probe": {"task": "controlplane.probe", "schedule": 0.5, "options": {"expires": 0.5}},
    "snapshot": {"task": "controlplane.refresh_snapshot", "schedule": 1.0, "options": {"expires": 1.0}},
    "preflight": {"task": "controlplane.preflight", "schedule": 1.0, "options": {"expires": 1.0}},
    "engine health": {"task": "controlplane.engine_health", "schedule": 1.0, "options": {"expires": 1.0}},
    "engine actions": {"task": "controlplane.engine_actions", "schedule": 0.5, "options": {"expires": 0.5}},
    "engine addresses": {"task": "controlplane.engine_addresses", "schedule": 10.0, "options": {"expires": 10.0}},
    "discovery": {"task": "controlplane.discovery", "schedule": 5.0, "options": {"expires": 5.0}},
    "KV nodes": {"task": "controlplane.kv_node_silence", "schedule": 5.0, "options": {"expires": 5.0}},
    "KV orders": {"task": "controlplane.kv_moves", "schedule": 2.0, "options": {"expires": 2.0}},
    "rebalance": {"task": "controlplane.rebalance", "schedule": 1.0, "options": {"expires": 1.0}},
    "canary": {"task": "controlplane.canary", "schedule": 2.0, "options": {"expires": 2.0}},
    "holdback": {"task": "controlplane.holdback", "schedule": 2.0, "options": {"expires": 2.0}},
    # Their rounds are further apart, but a person's change brings the next one forward.
    "scaling": {"task": "controlplane.scaling", "schedule": 1.0, "options": {"expires": 1.0}},
    "prefill/decode": {"task": "controlplane.prefill_decode", "schedule": 1.0, "options": {"expires": 1.0}},
    "revocations": {"task": "controlplane.store_revocations", "schedule": 5.0, "options": {"expires": 5.0}},
    "key usage": {"task": "controlplane.store_key_usage", "schedule": 5.0, "options": {"expires": 5.0}},
    "learned costs": {"task": "controlplane.store_learned_costs", "schedule": 15.0, "options": {"expires": 15.0}},
    "roll-ups": {"task": "controlplane.rollup", "schedule": 5.0, "options": {"expires": 5.0}},
    "request log": {"task": "controlplane.store_requests", "schedule": 1.0, "options": {"expires": 1.0}},
    "shadows": {"task": "controlplane.shadows", "schedule": 2.0, "options": {"expires": 2.0}},
    "what-if": {"task": "controlplane.whatif", "schedule": 1.0, "options": {"expires": 1.0}},
    "scheduled publish": {"task": "controlplane.scheduled_publish", "schedule": 2.0, "options": {"expires": 2.0}},
    "housekeeping": {"task": "controlplane.housekeeping", "schedule": 60.0, "options": {"expires": 60.0}},
}

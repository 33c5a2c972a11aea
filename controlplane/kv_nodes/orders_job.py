"""Stores what became of orders that moved KV blocks."""

from __future__ import annotations

import functools

from celery import shared_task

from controlplane.kv_nodes.orders import keep_orders
from controlplane.platform.bus import get_bus
from controlplane.platform.stream_intake import StreamIntake
from gateway.contracts.kv_order import TOPIC


@shared_task(name="controlplane.kv_orders", ignore_result=True)
def kv_orders() -> None:
    """Run every two seconds: the first run begins to listen, each later one stores what has come.

    No lease: every process that stores hears the same, and a row that is stored twice is one.
    """
    keep_orders(intake())


@functools.cache
def intake() -> StreamIntake:
    """Return this process's one intake."""
    return StreamIntake(get_bus(), TOPIC)

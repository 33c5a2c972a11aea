"""The bus of this process, over which the control plane talks to the live wing."""

from __future__ import annotations

import functools

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from gateway.bus import Bus, InProcessBus


@functools.cache
def get_bus() -> Bus:
    """Return the process's one bus; raises ImproperlyConfigured where REDIS_URL asks for a shared one."""
    if settings.REDIS_URL:
        raise ImproperlyConfigured(
            "REDIS_URL is set, but this version has no bus over Redis: several processes would not see "
            "each other's topology. Unset REDIS_URL and run one process."
        )
    return InProcessBus()

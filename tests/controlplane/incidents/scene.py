"""An incident as the job stores it, made from planted readings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from controlplane.incidents.job import detect
from controlplane.incidents.models.incident import Incident
from controlplane.incidents.watch import IncidentWatch
from tests.planning.incidents.world import World


class JobScene:
    """A world whose readings the job follows, in pool `pool-0`. Mutable: the world and the watch of the process."""

    def __init__(self) -> None:
        self.world = World(seed=5)
        # Now, so that leases and the audit have the same time.
        self.world.now = datetime.now(UTC).timestamp() - 700
        self.watch = IncidentWatch()
        self.watch.log = self.world.log

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.world.now, UTC)

    def run(self, seconds: int) -> None:
        for _ in range(0, seconds, 5):
            for _ in range(5):
                self.world.step()
            detect(self.watch, self.at)

    def restart(self) -> None:
        """Start the process again: its readings are lost, the database stays."""
        self.watch = IncidentWatch()
        self.world.log = self.watch.log

    def flood(self) -> Incident:
        """Return the open incident that a tenant's flood causes."""
        self.run(300)
        self.world.pool().tenants |= {"acme": 25.0}
        self.world.pool().late = 0.4
        self.run(70)
        return Incident.objects.get()

    def calm(self) -> None:
        """End the trouble, and wait until its incident has closed."""
        self.world.pool().tenants |= {"acme": 5.0}
        self.world.pool().late = 0.02
        self.run(260)


HOUR = timedelta(hours=1)

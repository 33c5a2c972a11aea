"""How a job runs: leases and cooperative stops."""

"""`python -m simulator.engine_server`: run one simulated engine."""

from __future__ import annotations

from simulator.engine_server.command_line import main

if __name__ == "__main__":
    main()

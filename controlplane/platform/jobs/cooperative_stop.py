"""The request to every running job of this process to end soon."""

from __future__ import annotations

import threading

stop_requested = threading.Event()
"""Set when the process shuts its jobs down; long jobs check it several times a second."""

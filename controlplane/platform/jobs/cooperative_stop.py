"""Signals all running jobs of this process to end soon."""

from __future__ import annotations

import threading

stop_requested = threading.Event()
"""Set when the process shuts down its jobs. Long jobs check it several times a second."""

"""A link whose bytes per second are scaled like the payloads."""

from __future__ import annotations

from threading import Lock


class ScaledLink:
    """Runs transfers from each holder one after another. Mutable state: `_free_at`, when each holder's link is free."""

    def __init__(self, bytes_per_s: float, latency_s: float = 0.0) -> None:
        """If `bytes_per_s` is 0 or less, only the machine limits the rate."""
        self._bytes_per_s, self._latency_s = bytes_per_s, latency_s
        self._free_at: dict[str, float] = {}
        self._lock = Lock()

    def transfer(self, holder: str, size: int, now: float) -> float:
        """Return the seconds from `now` until `size` bytes have arrived from the holder."""
        if self._bytes_per_s <= 0:
            return 0.0
        with self._lock:
            self._free_at = {name: free for name, free in self._free_at.items() if free > now}
            free_at = max(now, self._free_at.get(holder, now)) + size / self._bytes_per_s
            self._free_at[holder] = free_at
        return free_at - now + self._latency_s

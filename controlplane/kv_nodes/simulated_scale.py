"""KV payload sizes of the simulated engines that the supervisor starts. Their links are scaled equally."""

from __future__ import annotations

BYTES_PER_TOKEN = 64
REAL_BYTES_PER_TOKEN = 57_344
"""KV bytes per token of a 7B model with 4 KV heads in 16 bits, which the simulated engines represent."""
RATIO = REAL_BYTES_PER_TOKEN // BYTES_PER_TOKEN

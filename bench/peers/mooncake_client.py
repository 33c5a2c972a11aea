"""A client of Mooncake Store in a separate process. It reads requests and writes answers as JSON lines.

Arguments: own address, address of the master, bytes contributed to the store, bytes of its own buffer.
"""

import ctypes
import json
import os
import statistics
import sys
import time

_LARGEST = 4 << 20


class Client:
    """One store handle and one registered, reused buffer."""

    def __init__(self, own: str, master: str, segment_bytes: int, buffer_bytes: int) -> None:
        self._setting = (own, "P2PHANDSHAKE", segment_bytes, buffer_bytes, "tcp", "", master)
        self._ends: dict[str, bytes] = {}
        self._memory = bytearray(_LARGEST)
        self._pointer = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def set_up(self, seconds: float) -> int:
        """Connect to the master. Return 0 on success."""
        from mooncake.store import MooncakeDistributedStore

        ends_at, result = time.monotonic() + seconds, -1
        while result and time.monotonic() < ends_at:
            self._store = MooncakeDistributedStore()
            result = self._store.setup(*self._setting)
            if result:
                time.sleep(0.2)
        return result or self._store.register_buffer(self._pointer, _LARGEST)

    def put(self, name: str, size: int, count: int) -> float:
        """Put this many objects. Return the median in microseconds."""
        took = []
        for number in range(count):
            self._memory[:size] = os.urandom(size)
            self._ends[f"{name}-{number}"] = bytes(self._memory[size - 64 : size])
            before = time.perf_counter_ns()
            result = self._store.put_from(f"{name}-{number}", self._pointer, size)
            took.append((time.perf_counter_ns() - before) / 1000)
            if result:
                raise RuntimeError(f"put_from answers {result}")
        return statistics.median(took)

    def get(self, name: str, size: int, objects: int, count: int) -> float:
        """Get objects in turn. Return the median in microseconds."""
        took = []
        for number in range(count):
            key = f"{name}-{number % objects}"
            before = time.perf_counter_ns()
            result = self._store.get_into(key, self._pointer, size)
            took.append((time.perf_counter_ns() - before) / 1000)
            if result != size or self._memory[size - 64 : size] != self._ends[key]:
                raise RuntimeError(f"get_into answers {result}, or other bytes than were put")
            self._memory[size - 64 : size] = bytes(64)
        return statistics.median(took)


def main() -> None:
    """Answer until standard input ends."""
    own, master, segment_bytes, buffer_bytes = sys.argv[1:]
    client = Client(own, master, int(segment_bytes), int(buffer_bytes))
    for line in sys.stdin:
        request = json.loads(line)
        result = getattr(client, request.pop("do"))(**request)
        print("\n" + json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main()

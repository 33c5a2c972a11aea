"""A node manager process that is killed, stopped, and restarted on one directory, whose disk can be full."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

from bench.kv.soak_run.fault_proxy import FaultProxy
from bench.kv.soak_run.known_blocks import SECRET, SLOT_BYTES
from bench.live.loopback_ports import free_ports
from kvstore.tiers.block_header import HEADER_BYTES

ROOT = Path(__file__).parents[3]
DRAM_MIB, SSD_MIB = 2, 6
DRAM_SLOTS, SSD_SLOTS = (DRAM_MIB << 20) // SLOT_BYTES, (SSD_MIB << 20) // SLOT_BYTES
_HEADERS_AT = 4096
_PAYLOADS_AT = -(-(_HEADERS_AT + SSD_SLOTS * HEADER_BYTES) // 4096) * 4096
_TMPFS_MIB = (8, 4)
"""The disk of every second node is smaller than its tier, so that it fills up without a fault."""
_START_S, _GLANCE_S = 60.0, 0.5
_SERVES = re.compile(rb"serves on 127\.0\.0\.1:(\d+)")


class NodeError(RuntimeError):
    """A node manager did not start, or did not exit on its signal."""


class NodeProcess:
    """One node across restarts.

    Mutable: the current process, its ports, and its number of open descriptors after the start.
    """

    def __init__(self, number: int, folder: Path, seed: int) -> None:
        self.name = f"node{number}"
        self.directory = folder / self.name
        self.counted = Counter[str]()
        """Counters of the earlier processes, read shortly before each was killed."""
        self._tmpfs_mib = _TMPFS_MIB[number % len(_TMPFS_MIB)]
        self.proxy = FaultProxy(f"{seed} {self.name}")
        self.on_tmpfs = False
        self.lives = 0
        self.base_descriptors = 0
        self._filler = self.directory / "filler"
        self._log = folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._metrics_port = 0

    def prepare(self) -> None:
        """Mount a small tmpfs for the node, or limit its file sizes if mounting is not permitted."""
        self.directory.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._tmpfs_mib}m", "tmpfs", str(self.directory)]
        self.on_tmpfs = not subprocess.run(command, capture_output=True, check=False).returncode

    def start(self) -> None:
        """Start, and wait until it serves. Raises NodeError if it does not."""
        self._log.touch()
        before, [self._metrics_port] = self._log.stat().st_size, free_ports(1)
        command = [sys.executable, "manage.py", "node", "--port", "0", "--name", self.name]
        command += ["--directory", str(self.directory), "--dram-mib", str(DRAM_MIB), "--ssd-mib", str(SSD_MIB)]
        command += ["--slot-kib", str(SLOT_BYTES >> 10), "--metrics-port", str(self._metrics_port)]
        environment = {**os.environ, "HEADWAY_KV_SECRET": SECRET}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        ends_at = time.monotonic() + _START_S
        while not (serves := _SERVES.findall(self._log.read_bytes()[before:])):
            if self._process.poll() is not None or time.monotonic() > ends_at:
                tail = self._log.read_bytes()[before:].decode(errors="replace").splitlines()[-3:]
                raise NodeError(f"{self.name} did not start: {' / '.join(tail)}")
            time.sleep(0.02)
        self.lives += 1
        # The first scrape opens descriptors of its own, which must count as the node's base.
        self.metrics()
        self.base_descriptors = self.descriptors()
        self.proxy.port_behind = int(serves[0])

    @property
    def direct_address(self) -> str:
        """The node's own address, without the proxy."""
        return f"127.0.0.1:{self.proxy.port_behind}"

    @property
    def running(self) -> bool:
        """Whether the process exists."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        with contextlib.suppress(OSError):
            # Counters end with the process, so they are read just before; a stopped node does not answer.
            self.counted += Counter(
                {name: int(value) for name, value in self.metrics(_GLANCE_S).items() if "_total" in name}
            )
        self.proxy.port_behind = 0
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Suspend the process (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume a suspended process."""
        self._signal(signal.SIGCONT)

    def end(self) -> int:
        """Drain and stop the process. Return its exit status, −9 if it had to be killed."""
        if self._process is None:
            return 0
        self._signal(signal.SIGTERM)
        try:
            return self._process.wait(60.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9

    def fill_disk(self) -> None:
        """Fill its disk completely, or limit its file to the current size."""
        if self.on_tmpfs:
            with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(1 << 16))
            with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as filler:
                while True:
                    # Smaller writes fill what the large ones left.
                    filler.write(bytes(512))
        elif self.running and self._process is not None:
            size = (self.directory / "blocks.kv").stat().st_size
            limits = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size, limits[1]))

    def free_disk(self) -> None:
        """Undo `fill_disk`."""
        self._filler.unlink(missing_ok=True)
        if not self.on_tmpfs and self.running and self._process is not None:
            hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def flip_bits(self, rng: random.Random, count: int) -> None:
        """Flip bits in the slot file: mostly in payloads, some in headers."""
        path = self.directory / "blocks.kv"
        size = path.stat().st_size
        with path.open("r+b", buffering=0) as file:
            for _ in range(count):
                header = rng.random() < 0.2
                low, high = (_HEADERS_AT, _PAYLOADS_AT) if header else (_PAYLOADS_AT, _PAYLOADS_AT + (SSD_MIB << 20))
                offset, bit = rng.randrange(low, high), 1 << rng.randrange(8)
                if offset < size and (byte := os.pread(file.fileno(), 1, offset)):
                    with contextlib.suppress(OSError):
                        os.pwrite(file.fileno(), bytes([byte[0] ^ bit]), offset)

    def metrics(self, timeout_s: float = 30.0) -> dict[str, float]:
        """Return all metrics, keyed by name and labels as written. Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=timeout_s) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.removeprefix("headway_kv_"): float(value) for name, value in pairs}

    def descriptors(self) -> int:
        """Return the number of the process's open files and sockets."""
        return len(list(Path(f"/proc/{self._pid}/fd").iterdir()))

    def log_lines(self) -> list[str]:
        """Return the log lines of all its processes."""
        return self._log.read_text(errors="replace").splitlines()

    def file_bytes(self) -> bytes:
        """Return the content of the slot file."""
        return (self.directory / "blocks.kv").read_bytes()

    def close(self) -> None:
        """Stop the process and the proxy."""
        self.kill()
        self.proxy.close()
        if self.on_tmpfs:
            subprocess.run(["umount", str(self.directory)], capture_output=True, check=False)

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise NodeError(f"{self.name} has no process")
        return self._process.pid

    def _signal(self, number: signal.Signals) -> None:
        if self.running and self._process is not None:
            self._process.send_signal(number)

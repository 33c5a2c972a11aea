"""`manage.py up --engines URL…` routes to engines that are named once and may start later."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_ports
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.program import ROOT, end

pytestmark = [pytest.mark.processes, pytest.mark.long]


def test_named_engines_serve_the_printed_request(tmp_path: Path) -> None:
    early, late = SimulatedEngine(model="org/Chat-8B", events=False), SimulatedEngine(model="org/Chat-8B", events=False)
    early.start()
    (port,) = free_ports(1)
    command = [sys.executable, "manage.py", "up", "--port", str(port), "--engines", f"{early.url}/v1,{late.url}"]
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(tmp_path / "var")}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Trying again" in line:
                assert late.url in line
                late.start()
            if " -d " in line:
                break
        assert said.count("Routing by estimated hits.") == 2
        key = re.search(r"API key \(shown once\): (hw_\S+)", said)
        assert key is not None
        body = {"model": "org/Chat-8B", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {key[1]}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
    finally:
        end(process)
        if process.stdout is not None:
            process.stdout.close()
        early.stop()
        late.stop()

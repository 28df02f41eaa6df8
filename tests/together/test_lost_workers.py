"""A worker that is killed under its calls: they are told, or run again where they allow it."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.redis_servers import RedisServer
from support.stack import Stack, running_stack

# Counts its runs in a file, and ends by itself only in the second.
SOURCE = """
import os, time

def count(tally):
    with open(tally, "a") as file:
        file.write("x")
    while os.path.getsize(tally) < 2:
        time.sleep(0.05)
    return os.path.getsize(tally)
"""


@pytest.fixture
def tallies(short_path: Path) -> list[Path]:
    short_path.chmod(0o711)  # sandboxes may have users of their own
    files = [short_path / "told", short_path / "again"]
    for file in files:
        file.touch()
        file.chmod(0o666)
    return files


def spawn(stack: Stack, tally: Path, **options: Any) -> str:
    body = {"source": SOURCE, "entrypoint": "count", "args": [str(tally)], "options": options}
    request = urllib.request.Request(
        f"{stack.url}/v1/invoke",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {stack.token}",
            "Content-Type": "application/json",
            "Prefer": "respond-async",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["call_id"])


def test_one_is_told_and_one_runs_again_elsewhere(
    valkey: RedisServer, short_path: Path, tallies: list[Path]
) -> None:
    with running_stack(valkey.url, short_path) as stack:
        told, again = (
            spawn(stack, tally, retries=retries)
            for tally, retries in zip(tallies, (0, 1), strict=True)
        )
        stack.until("both run", lambda: all(tally.stat().st_size for tally in tallies))
        killed = stack.workers.pop()
        killed.kill()
        killed.wait()
        stack.start_worker()

        ends: dict[str, dict[str, Any]] = {}

        def has_ended(call: str) -> bool:
            ends[call] = dict(stack.get(f"/v1/calls/{call}/result?wait=1") or {})
            return "ok" in ends[call]

        stack.until("it is told", lambda: has_ended(told))
        assert ends[told]["error"]["kind"] == "worker_lost"
        stack.until("it has run again", lambda: has_ended(again))
        assert ends[again]["value"] == 2
        assert ends[again]["receipt"]["attempt"] == 2
        assert [tally.read_text() for tally in tallies] == ["x", "xx"]

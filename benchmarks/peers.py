"""What Readie is held against: a raw stream between two processes, and rq's workers."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import rq
from rq.results import Result

ECHO_PROGRAM = """
import sys, redis
client = redis.Redis(unix_socket_path=sys.argv[1])
last = "0"
while True:
    for _, entries in client.xread({"floor:in": last}, block=0, count=1):
        for entry, fields in entries:
            last = entry
            client.xadd("floor:out", fields, maxlen=100)
"""


def no_op() -> None:
    """The job that rq's workers run."""


@contextmanager
def process(command: list[str], **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        child.terminate()
        child.wait(timeout=20)


@contextmanager
def stream_floor(socket_path: str) -> Iterator[Callable[[], object]]:
    """A round trip over two Redis streams and one other process: nobody can be faster."""
    client = redis.Redis(unix_socket_path=socket_path)
    client.delete("floor:in", "floor:out")
    with process([sys.executable, "-c", ECHO_PROGRAM, socket_path]):
        last = b"0"

        def round_trip() -> object:
            nonlocal last
            client.xadd("floor:in", {"x": b"1"}, maxlen=100)
            answer: Any = client.xread({"floor:out": last}, block=10_000, count=1)
            last = answer[0][1][-1][0]
            return last

        yield round_trip
    client.close()


@contextmanager
def rq_worker(socket_path: str, worker_class: str) -> Iterator[Callable[[], object]]:
    """One rq worker of a class such as ``rq.worker.SimpleWorker``, and a call through it."""
    client = redis.Redis(unix_socket_path=socket_path)
    queue = rq.Queue(worker_class.rsplit(".", 1)[1], connection=client)
    command = [
        sys.executable, "-m", "rq.cli", "worker", queue.name,
        "--url", f"unix://{socket_path}", "--worker-class", worker_class, "--quiet",
    ]  # fmt: skip
    root = str(Path(__file__).parent.parent)
    with process(command, PYTHONPATH=root):

        def round_trip() -> object:
            job = queue.enqueue(no_op, result_ttl=30)
            result = Result.fetch_latest(job, timeout=30)
            if result is None:
                raise RuntimeError("rq gave no result within 30 s")
            return result

        yield round_trip
    client.close()

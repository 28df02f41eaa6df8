"""A whole Readie that follows a bucket of a real S3 server, while calls flow."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from readie_infra.bucket import SigningKey
from readie_infra.objects import open_objects
from readie_pipeline.publish.publishing import publish, roll_back
from readie_wire.publication import ANY_ROOTFS
from support.published import quietly, stock_of, write_captured
from support.redis_servers import RedisServer
from support.s3_servers import S3Server
from support.stack import Stack, running_stack

CALLERS = 2
SOURCE = "import click\nresult = click.__name__"


@dataclass
class Published:
    """A bucket, and what publishes to it."""

    url: str
    key: SigningKey
    folder: Path
    generations: list[str] = field(default_factory=list)

    def publish(self) -> str:
        """Capture and publish one more generation; its id."""
        number = len(self.generations) + 1
        folder = self.folder / f"captured-{number}"
        made = write_captured(
            folder,
            {"checkpoint_0": [], "checkpoint_1": ["click"]},
            created=f"2026010{number}T000000",
        )
        publish(open_objects(self.url), stock_of(folder), self.key, quietly)
        self.generations.append(made.generation)
        return made.generation


@pytest.fixture
def published(s3: S3Server, tmp_path: Path) -> Published:
    return Published(s3.make_bucket(), SigningKey.create(tmp_path / "key.pem"), tmp_path)


@pytest.fixture
def stack(
    valkey: RedisServer, short_path: Path, s3: S3Server, published: Published
) -> Iterator[Stack]:
    """A gateway and two workers, which share a disk, on an empty bucket."""
    settings = {
        **s3.environment,
        "READIE_BUCKET": published.url,
        "READIE_BUCKET_KEYS": published.key.public,
        "READIE_BUCKET_POLL": "0.2",
        "READIE_BEAT": "1.5",
    }
    with running_stack(valkey.url, short_path, settings=settings) as running:
        running.start_worker()
        yield running


class Traffic:
    """Calls that follow one another without a pause until the block ends."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._stop = threading.Event()
        self._callers = [threading.Thread(target=self._call) for _ in range(CALLERS)]
        self.seen: Counter[str] = Counter()  # calls by the generation they ran on
        self.wrong: list[Any] = []
        self.without_generation: list[Any] = []  # their receipts

    def __enter__(self) -> "Traffic":
        for caller in self._callers:
            caller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for caller in self._callers:
            caller.join()

    def _call(self) -> None:
        while not self._stop.is_set():
            answer = self._stack.invoke(source=SOURCE)
            receipt = answer["receipt"]
            if not answer["ok"] or answer["value"] != "click":
                self.wrong.append(answer)
            self.seen[receipt["generation"] or receipt["start_kind"]] += 1
            if not receipt["generation"]:
                self.without_generation.append(receipt)


def held_by(stack: Stack, generation: str) -> int:
    """Workers that can restore all of a generation that the gateway prices."""
    answer = stack.get("/v1/generations") or {"generations": []}
    for held in answer["generations"]:
        if held["generation"] == generation and held["priced"] and len(held["checkpoints"]) == 2:
            return len(held["workers"])
    return 0


def test_calls_go_over_to_what_is_published_and_back_and_none_is_lost(
    stack: Stack, published: Published
) -> None:
    first = published.publish()
    stack.until("both workers hold the first", lambda: held_by(stack, first) == 2)
    with Traffic(stack) as traffic:
        stack.until("calls run on the first", lambda: traffic.seen[first] > 0)
        second = published.publish()
        stack.until("both workers hold the second", lambda: held_by(stack, second) == 2)
        stack.until("calls run on the second", lambda: traffic.seen[second] > 5)
        roll_back(open_objects(published.url), "cpu", ANY_ROOTFS)
        stack.until("both workers are back", lambda: held_by(stack, first) == 2)
        before = traffic.seen[first]
        stack.until("calls run on the first again", lambda: traffic.seen[first] > before + 5)
    assert not traffic.wrong
    assert set(traffic.seen) == {first, second}, traffic.without_generation


def test_a_worker_that_can_follow_nothing_says_why_and_runs_calls_cold(
    stack: Stack, published: Published
) -> None:
    stack.until(
        "a note says that the bucket is empty", lambda: noted(stack, "nothing is published")
    )
    published.key = SigningKey.create(published.folder / "stranger.pem")
    published.publish()
    stack.until("a note tells of a strange signature", lambda: noted(stack, "none of the keys"))
    assert stack.invoke(source=SOURCE)["receipt"]["start_kind"] == "cold"


def noted(stack: Stack, text: str) -> bool:
    return any(text in note for record in stack.worker_records() for note in record["notes"])

"""What an operator does with generations, command by command, on real processes and a real S3 server."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from readie_infra.bucket import SigningKey
from support.generations import EMPTY
from support.published import write_captured
from support.redis_servers import RedisServer
from support.s3_servers import S3Server
from support.scripts import Script, run_module
from support.stack import Stack, running_stack

NEVER = "3600"  # seconds between two looks: only a nudge makes a worker look
MISSING = "no_such_module"
SWAPPED_TWICE = re.compile(r'readie_swaps_total\{worker="worker-\w+"\} 2\.0')

Run = Callable[..., Script]


@pytest.fixture
def bucket(s3: S3Server) -> str:
    return s3.make_bucket()


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "key.pem")


@pytest.fixture
def stack(
    valkey: RedisServer, short_path: Path, s3: S3Server, bucket: str, key: SigningKey
) -> Iterator[Stack]:
    settings = {
        **s3.environment,
        "READIE_BUCKET": bucket,
        "READIE_BUCKET_KEYS": key.public,
        "READIE_BUCKET_POLL": NEVER,
        "READIE_BEAT": "1.5",
    }
    with running_stack(valkey.url, short_path, settings=settings) as running:
        yield running


@pytest.fixture
def run(stack: Stack, bucket: str, tmp_path: Path) -> Run:
    def run(module: str, *words: object) -> Script:
        environment = {**stack.client_environment, "READIE_BUCKET": bucket}
        return run_module(module, *words, folder=tmp_path, environment=environment)

    return run


def served(stack: Stack) -> dict[str, Any]:
    """The generation that calls are priced for by default, once a worker has all it will have."""
    answer = stack.get("/v1/generations") or {"generations": []}
    return next((one for one in answer["generations"] if one["current"]), {"generation": ""})


def test_from_publishing_to_serving_without_waiting_and_looking_at_all_of_it(
    stack: Stack, run: Run, tmp_path: Path
) -> None:
    def publish(number: int, *imports: str) -> str:
        folder = tmp_path / f"captured-{number}"
        made = write_captured(
            folder,
            {EMPTY: [], "checkpoint_1": ["click"], "checkpoint_2": [*imports]},
            created=f"2026010{number}T000000",
        )
        options = ("--allow-host-rootfs", "--signing-key", tmp_path / "key.pem")
        done = run(
            *("readie_pipeline", "publish", "--generation", folder, *options),
            *("--notify", stack.url),
        )
        assert done.status == 0, done.err
        assert "1 worker was told to look at it" in done.out
        stack.until("it is served", lambda: served(stack)["generation"] == made.generation)
        return made.generation

    first = publish(1, "json")
    second = publish(2, MISSING)
    stack.until("the rest is refused", lambda: MISSING in json.dumps(stack.worker_records()))

    listed = run("readie", "generations", "list").out
    assert re.search(rf"{second} .*current since 2.* 2 of 3 .* 1 worker .*by default", listed)
    assert re.search(rf"{first} .*previous", listed)

    shown = run("readie", "generations", "show", second).out
    assert re.search(r"checkpoint_1 .*click .*0\.2 .*1 (memory|disk)", shown)
    assert re.search(r"checkpoint_2 .*refused by 1", shown)
    assert re.search(rf"worker-\w+ does not restore checkpoint_2: .*{MISSING}", shown)

    found = json.loads(run("readie", "generations", "diff", first, second, "--json").out)
    assert [one["imports"] for one in found["checkpoints"]["added"]] == [[MISSING]]
    assert [one["imports"] for one in found["checkpoints"]["removed"]] == [["json"]]
    assert found["bytes"]["new"] > 3 * 150_000
    compared = run("readie", "generations", "diff", first, second).out
    assert f"+ checkpoint_2 ({MISSING})" in compared

    unknown = run("readie", "generations", "show", "20990101T000000-00000000")
    assert unknown.status == 1
    assert "is served by no live worker and not in s3://" in unknown.err

    back = run("readie_pipeline", "rollback", "--notify", stack.url)
    assert back.status == 0, back.err
    stack.until("the first is back", lambda: served(stack)["generation"] == first)
    stack.until("both swaps are counted", lambda: bool(SWAPPED_TWICE.search(metrics_of(stack))))
    metrics = metrics_of(stack)
    assert re.search(r'readie_sync_bytes_total\{worker="worker-\w+"\} \d{6}', metrics)
    assert f'generation="{first}",state="served"' in metrics
    stack.until("both swaps and what came of them are in the log", lambda: swaps_told(stack) == 2)


def metrics_of(stack: Stack) -> str:
    """Empty while nothing answers."""
    return str(stack.get("/metrics") or "")


def swaps_told(stack: Stack) -> int:
    """Swaps in the worker's log that are followed by what is loaded now."""
    log = (stack.folder / "worker-0.log").read_text()
    return len(
        re.findall(r"generation swapped(?:(?!generation swapped).)*?artifacts loaded ", log, re.S)
    )

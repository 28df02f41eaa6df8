"""Images of real gVisor sandboxes: captured, published to a real S3 server, fetched, restored."""

import subprocess
import sys
from pathlib import Path

from readie_infra.bucket import SigningKey
from readie_infra.objects import open_objects
from readie_pipeline.publish.publishing import publish
from support.gvisor_kit import real_runsc
from support.published import quietly, stock_of
from support.redis_servers import RedisServer
from support.s3_servers import S3Server
from support.stack import Stack, running_stack

CAPTURE_DEADLINE_S = 250


def test_a_call_restores_a_checkpoint_that_came_from_the_bucket(
    valkey: RedisServer, short_path: Path, s3: S3Server, tmp_path: Path
) -> None:
    real_runsc()
    capture = (sys.executable, "-m", "readie_pipeline", "capture", "--planner", "fixed")
    subprocess.run(
        [*capture, "--imports", "click", "--runtime", "gvisor", "--out", tmp_path / "captured"],
        check=True,
        timeout=CAPTURE_DEADLINE_S,
        cwd=tmp_path,
    )
    bucket, key = s3.make_bucket(), SigningKey.create(tmp_path / "key.pem")
    stock = stock_of(tmp_path / "captured")
    assert any(file.name.endswith("pages.img") for file in stock.listed.files)
    publish(open_objects(bucket), stock, key, quietly)
    settings = {
        **s3.environment,
        "READIE_BUCKET": bucket,
        "READIE_BUCKET_KEYS": key.public,
        "READIE_BUCKET_POLL": "0.2",
        "READIE_RUNTIME": "gvisor",
        "READIE_NETWORK": "none",
    }
    with running_stack(valkey.url, short_path, settings=settings) as stack:
        stack.until("the generation is held", lambda: stack.holds(tmp_path / "captured"))
        answer = stack.invoke(source="import click\nresult = click.__name__")
        stack.until("its image is seen in memory", lambda: all_in_memory(stack))
    assert answer["value"] == "click", answer
    assert answer["receipt"]["start_kind"] in ("restored", "pool")
    assert answer["receipt"]["generation"] == stock.manifest.generation


def all_in_memory(stack: Stack) -> bool:
    """Also false while nothing answers."""
    held = [
        one
        for record in stack.worker_records()
        for generation in record["holding"]["generations"]
        for one in generation["checkpoints"].values()
    ]
    return bool(held) and all(one["tier"] == "memory" and one["ready"] for one in held)

"""What a gateway counts of its calls is what the pipeline plans from."""

import asyncio
from pathlib import Path

from readie_pipeline.corpus.dataset import Dataset
from readie_pipeline.corpus.patience import Patience
from readie_pipeline.corpus.recorded import fetch_recorded
from readie_wire.records import CallRecord
from support.gateway import TOKEN, PlayedWorker, played_worker, running_gateway
from support.redis_servers import RedisServer


async def answer_1(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, b"1")


async def test_the_calls_of_a_gateway_become_a_corpus(valkey: RedisServer, tmp_path: Path) -> None:
    sources = ("import numpy, pandas", "import pandas\nimport os, numpy", "import six")
    async with (
        running_gateway(valkey.socket_url, tmp_path, record_imports_days=2) as gateway,
        played_worker(gateway, answer_1),
    ):
        for source in sources:
            assert (await gateway.invoke({"source": source})).status == 200
        workloads = await asyncio.to_thread(fetch_recorded, gateway.url, TOKEN, None, Patience())
    dataset = Dataset("cpu", workloads)
    counts = dict(zip(dataset.requests(), dataset.counts(), strict=True))
    assert counts == {("numpy", "pandas"): 2, ("six",): 1}

"""A catalogue too large for the event loop's own process: the same prices, by way of another one."""

import hashlib
import os
from pathlib import Path

import pytest

from readie_gateway import app, loading
from readie_gateway.catalogues import Catalogues
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item, dump_catalogue
from support.calling import until
from support.gateway import running_gateway
from support.redis_servers import RedisServer

NAMES = [f"package{number}" for number in range(60)]
CATALOGUE = Catalogue(
    flavor="cpu",
    alpha=0.002,
    distributions={"package7": "1.0"},
    items={
        name: Item(0.01 * number, 1.0, dependencies=NAMES[:number], distribution=name)
        for number, name in enumerate(NAMES)
    },
    checkpoints=[CatalogueCheckpoint("checkpoint_1", NAMES[:30], [NAMES[29]], 30.0)],
)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LARGE_BYTES", 0)


async def test_it_prices_as_the_file_does(tmp_path: Path) -> None:
    data = dump_catalogue(CATALOGUE)
    (tmp_path / "cpu.json").write_bytes(data)
    catalogues = Catalogues(folder=tmp_path)
    assert await catalogues.refresh()
    (loaded,) = catalogues.loaded
    assert loaded.sha256 == hashlib.sha256(data).hexdigest()
    quotes = loaded.priced.quote([NAMES[40]])
    assert quotes[0].total_s == pytest.approx(sum(0.01 * number for number in range(41)))
    assert quotes[1].missing == tuple(sorted(NAMES[30:41]))
    assert loaded.facts["checkpoint_1"].distributions["package7"] == "1.0"
    dependencies = [item.dependencies for item in loaded.priced.catalogue.items.values()]
    assert max(map(len, dependencies)) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"{", "not JSON"), (b'{"version": 1}', "version is 1"), (b"", "must hold one JSON object")],
)
async def test_a_bad_one_is_skipped_with_the_reason(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    (tmp_path / "cpu.json").write_bytes(data + b" ")
    catalogues = Catalogues(folder=tmp_path)
    await catalogues.refresh()
    assert not catalogues.loaded
    (said,) = catalogues.skipped.values()
    assert reason in said


async def test_one_whose_reader_dies_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.json").write_bytes(dump_catalogue(CATALOGUE))
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(killed))
    catalogues = Catalogues(folder=tmp_path)
    await catalogues.refresh()
    assert not catalogues.loaded
    (said,) = catalogues.skipped.values()
    assert "more memory" in said


async def test_one_that_takes_long_keeps_no_gateway_from_starting_nor_from_stopping(
    valkey: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "catalogues"
    folder.mkdir()
    (folder / "cpu.json").write_bytes(dump_catalogue(CATALOGUE))
    begun = tmp_path / "pid"
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\necho $$ > {begun}.new\nmv {begun}.new {begun}\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(slow))
    monkeypatch.setattr(app, "CATALOGUES_PATIENCE_S", 0.01)
    async with running_gateway(valkey.socket_url, tmp_path, catalogues=folder) as gateway:
        listed = await gateway.get("/v1/catalogues")
        assert (listed.status, listed.json()) == (200, {"catalogues": [], "skipped": []})
        await until(begun.exists)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)

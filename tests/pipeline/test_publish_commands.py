"""The commands around a bucket, as an operator types them, on a real S3 server."""

import os
import re
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from readie_infra.errors import SettingsError
from readie_infra.objects import open_objects
from readie_pipeline.cli import cli
from readie_pipeline.errors import PublishError
from readie_wire.publication import manifest_key, pointer_key
from support.generations import EMPTY
from support.published import IMAGE, stock_of, write_captured
from support.s3_servers import S3Server

Run = Callable[..., Result]


@pytest.fixture
def run(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command on a new bucket; an error of ours is raised as such."""
    monkeypatch.setenv("READIE_BUCKET", s3.make_bucket())
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Result:
        result = CliRunner().invoke(cli, [str(word) for word in words])
        if isinstance(result.exception, Exception):
            raise result.exception
        return result

    return run


def test_from_a_key_to_a_rollback(run: Run, tmp_path: Path) -> None:
    public = run("keygen", "--out", tmp_path / "key.pem").stdout.strip()
    ids = []
    for n in (1, 2):
        folder = tmp_path / f"g{n}"
        made = write_captured(
            folder, {EMPTY: [], "checkpoint_1": ["json"]}, created=f"2026010{n}T000000"
        )
        ids.append(made.generation)
        told = run(
            *("publish", "--generation", folder, "--signing-key", tmp_path / "key.pem"),
            "--allow-host-rootfs",
        ).stdout
        assert f"generation {made.generation} is current for cpu/any" in told
    assert f"it replaces {ids[0]}" in told
    shown = run("list", "--public-key", public).stdout
    assert re.search(rf"{ids[1]} +cpu +any +6 +0.3 +current since", shown)
    assert re.search(rf"{ids[0]} .*previous", shown)
    assert run("verify", "--public-key", public).stdout.count("as it was published") == 2
    assert f"{ids[0]} is current for cpu/any again" in run("rollback").stdout
    assert re.search(rf"{ids[0]} .*current since", run("list").stdout)
    assert "0 objects deleted" in run("gc").stdout


def test_what_cannot_be_is_said(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    write_captured(folder, {EMPTY: []})
    assert "give either --signing-key" in run("publish", "--generation", folder).stderr
    with pytest.raises(PublishError, match="--allow-host-rootfs"):
        run("publish", "--generation", folder, "--unsigned")
    with pytest.raises(PublishError, match="nothing is published for cpu"):
        run("rollback")
    with pytest.raises(SettingsError, match="is not supported"):
        run("list", "--bucket", "http://x")
    run("publish", "--generation", folder, "--unsigned", "--allow-host-rootfs")
    assert "unchanged" not in run("list").stdout
    told = run("publish", "--generation", folder, "--unsigned", "--allow-host-rootfs").stdout
    assert "is current for cpu/any already" in told
    stranger = run("keygen", "--out", tmp_path / "key.pem").stdout.strip()
    assert "refused: " in run("list", "--public-key", stranger).stdout
    with pytest.raises(PublishError, match="1 of what is published"):
        run("verify", "--public-key", stranger)


def test_a_fleet_that_cannot_be_told_is_a_warning_and_the_generation_is_current(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READIE_AUTH_TOKEN", "token")
    folder = tmp_path / "made"
    made = write_captured(folder, {EMPTY: []})
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = run(
            *("publish", "--generation", folder, "--unsigned", "--allow-host-rootfs"),
            *("--notify", url),
        )
    assert f"generation {made.generation} is current" in done.stdout
    assert "workers will look by themselves" in done.stderr
    assert "token" not in done.stderr


def test_what_is_lost_or_damaged_is_told_and_brought_back(run: Run, tmp_path: Path) -> None:
    key, folder = tmp_path / "key.pem", tmp_path / "made"
    run("keygen", "--out", key)
    made = write_captured(folder, {EMPTY: []}).generation
    publishing = ("publish", "--generation", folder, "--signing-key", key, "--allow-host-rootfs")
    assert "nothing is published in s3://" in run("list").stdout
    with pytest.raises(PublishError, match="nothing is published in s3://"):
        run("verify")
    run(*publishing)
    store = open_objects(os.environ["READIE_BUCKET"])
    image = stock_of(folder).listed.file(f"checkpoints/{EMPTY}/{IMAGE}").key
    store.put(image, b"other bytes")
    with pytest.raises(PublishError, match="--delete-damaged, then publish it again"):
        run("verify")
    with pytest.raises(PublishError, match="publish it again"):
        run("verify", "--delete-damaged")
    assert store.head(image) is None
    run(*publishing)
    assert "every file is as it was published" in run("verify").stdout

    store.delete(manifest_key("cpu", made))
    store.put(pointer_key("gpu", "any"), b"{")
    lost = f"the manifest of {made}, which is current for cpu/any, is gone"
    shown = run("list").stderr
    assert lost in shown
    assert "the pointer of gpu/any is refused" in shown
    with pytest.raises(PublishError, match="2 of what is published"):
        run("verify")
    with pytest.raises(PublishError, match=r"gpu/any is refused.* nothing is collected"):
        run("gc")
    store.delete(pointer_key("gpu", "any"))
    with pytest.raises(PublishError, match="is gone or cannot be read"):
        run("gc")
    run(*publishing)
    assert "0 objects deleted" in run("gc").stdout


def test_a_full_disk_is_named_with_what_helps(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made"
    write_captured(folder, {EMPTY: []})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(PublishError, match=r"cannot be compressed in .*nowhere.*TMPDIR"):
        run("publish", "--generation", folder, "--unsigned", "--allow-host-rootfs")

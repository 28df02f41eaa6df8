"""A real S3 server (SeaweedFS, from its wheel) with a folder and ports of its own."""

import os
import secrets
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from benchmarks.stack import free_port

START_TIMEOUT_S = 60.0
STOP_GRACE_S = 5.0
BUCKET = "bench"
BESIDE = 10_000  # each HTTP port of the server brings a second one, this far above
HIGHEST_PORT = 65_535
PORTS = ("master", "volume", "filer", "s3", "admin")
# Without these keys its other ports are open without a password.
DOORS = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")


@contextmanager
def object_server(folder: Path) -> Iterator[Mapping[str, str]]:
    """A server with an empty bucket named `BUCKET`; the environment that leads boto3 to it."""
    ports = {name: _port() for name in PORTS}
    keys = {
        "AWS_ACCESS_KEY_ID": secrets.token_hex(8),
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16),
    }
    url = f"http://127.0.0.1:{ports['s3']}"
    doors = {f"WEED_JWT_{door}_KEY": secrets.token_hex(16) for door in DOORS}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            _command(folder, ports),
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **keys, **doors},
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_healthy(server, url)
        environment = {**keys, "AWS_ENDPOINT_URL_S3": url, "AWS_REGION": "us-east-1"}
        client = plain_client(environment)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield environment
    finally:
        server.terminate()
        try:
            server.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def plain_client(environment: Mapping[str, str]) -> Any:
    """boto3 with its own defaults, for the server of that environment."""
    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
        config=Config(s3={"addressing_style": "path"}),
    )


def _command(folder: Path, ports: Mapping[str, int]) -> list[str]:
    return [
        *(str(Path(sysconfig.get_path("scripts"), "weed")), "-logtostderr=true", "mini"),
        *(f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-{name}.port={port}" for name, port in ports.items()),
        *("-master.telemetry=false", "-admin.ui=false", "-webdav=false"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        *(f"-filer.localSocket={folder}/f.sock", f"-s3.localSocket={folder}/s.sock"),
        "-volume.preStopSeconds=0",
    ]


def _port() -> int:
    while (port := free_port()) > HIGHEST_PORT - BESIDE:
        pass
    return port


def _wait_until_healthy(server: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the S3 server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the S3 server was not ready within {START_TIMEOUT_S:.0f} s")

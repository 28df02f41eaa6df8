"""Stand-ins for images that cannot be pulled here: a base system, and folders to build images from."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

from support.docker_engine import DockerEngine
from support.processes import tied
from support.redis_servers import valkey_binary
from support.s3_servers import s3_binary

# What the Dockerfile's own base brings, whose name it gets.
BASE = "python:3.11-slim-bookworm"
SUITE = "bookworm"
PACKAGES = (
    *("apt", "base-files", "base-passwd", "bash", "coreutils", "dash", "debian-archive-keyring"),
    *("dpkg", "findutils", "grep", "gzip", "iproute2", "libc-bin", "mawk", "mount", "nftables"),
    *("python3", "python3-venv", "sed", "tar", "util-linux"),
)
# They are only unpacked, which takes a quarter of the time; this is what setting them up would bring.
HOOKS = (
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    '--extract-hook=cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"',
    '--extract-hook=cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"',
    '--extract-hook=ln -s mawk "$1/usr/bin/awk"',
)
BASE_DEADLINE_S = 400
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")

_DOCKERFILE = f"""
FROM {BASE} AS valkey
COPY valkey-server /usr/local/bin/
FROM {BASE} AS s3
COPY weed /usr/local/bin/
ENTRYPOINT ["weed"]
"""


def import_base(engine: DockerEngine) -> None:
    """Make a small Debian from the mirror of this machine, and give it the name of the real base."""
    packages = f"--include={','.join(PACKAGES)}"
    options = ("--quiet", "--variant=extract", "--aptopt=Acquire::Retries 5", *HOOKS, packages)
    command = tied("mmdebstrap", *options, SUITE, "-")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as made:
        try:
            engine.run("import", "-", BASE, deadline_s=BASE_DEADLINE_S, stdin=made.stdout)
        except BaseException:
            made.kill()
            raise
    assert made.returncode == 0, "mmdebstrap failed; its words are above"


def lay_out_parts(folder: Path) -> None:
    """Fill a build context: the servers' binaries, a Dockerfile, and `pip.conf` for builds."""
    shutil.copy(valkey_binary(), folder / "valkey-server")
    shutil.copy(s3_binary(), folder / "weed")
    (folder / "Dockerfile").write_text(_DOCKERFILE)
    (folder / "pip.conf").write_text(_pip_configuration())


def _pip_configuration() -> str:
    """The indexes that pip uses here, as a build can use them: no paths of this machine."""
    printed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    settings = {"cert": "/run/secrets/ca_bundle", "retries": "10"}
    for line in printed.splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        if option in ("index-url", "extra-index-url", "trusted-host"):
            words = str(ast.literal_eval(value)).split()
            settings[option] = " ".join(word for word in words if not word.startswith("file:"))
    lines = [f"{option} = {value}" for option, value in settings.items() if value]
    return "\n".join(["[global]", *lines, ""])

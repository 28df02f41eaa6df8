"""What the file system of a sandbox is made of, and the digest that names it.

`host` root filesystems are a small folder of our own (`/etc/passwd`, mount points) under read-only
binds of exact folders of this machine: the interpreter, the environment, `/usr`, certificates.
Never whole trees that hold people's data: those are refused by name.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.ocispec import HOME, RUN_DIR, Bind

CODE_DIR = "/opt/readie"  # where a sandbox finds the executor's packages
UID = GID = 1000

# Folders that are never bound whole, however an interpreter was installed.
_TREES = "/ /boot /dev /etc /home /mnt /opt /proc /root /run /srv /sys /tmp /var"
FORBIDDEN_BINDS = frozenset(Path(tree) for tree in _TREES.split())
# Small system files that programs look at; copied, so that the sandbox keeps nothing else of /etc.
_ETC_FILES = ("ld.so.cache", "localtime", "mime.types", "os-release", "protocols", "services")
_ETC_FOLDERS = ("alternatives", "fonts", "ssl/certs")
_LINKED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")  # links into /usr, or folders

_PASSWD = f"root:x:0:0:root:/root:/bin/sh\nreadie:x:{UID}:{GID}:Readie:{HOME}:/bin/sh\n"
_GROUP = f"root:x:0:\nreadie:x:{GID}:\n"
_HOSTS = "127.0.0.1 localhost readie\n::1 localhost readie\n"
_NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"


@dataclass(frozen=True, slots=True)
class Rootfs:
    """A root filesystem on this machine.

    ``root`` is the folder under everything, ``binds`` what is mounted over it, ``python`` the
    interpreter's path inside, ``python_path`` the folders it searches besides its own, ``digest``
    a hash of what a checkpoint captured on it depends on.
    """

    root: Path
    binds: tuple[Bind, ...]
    python: str
    python_path: tuple[str, ...]
    digest: str


def build_host_rootfs(folder: Path, packages: Sequence[Path]) -> Rootfs:
    """Lay out `folder` as the root of sandboxes that run this interpreter and its environment.

    `packages` are the executor's package folders; they appear under `CODE_DIR`. Raises
    `RuntimeUnavailableError` when the interpreter lies where it cannot be bound.
    """
    binds = [*_system_binds(), *_interpreter_binds()]
    binds += [Bind(package, f"{CODE_DIR}/{package.name}") for package in packages]
    binds = _without_nested(binds)
    _lay_out(folder, binds)
    return Rootfs(
        root=folder,
        binds=tuple(binds),
        python=sys.executable,
        python_path=(CODE_DIR,),
        digest=_host_digest(binds),
    )


def build_bare_rootfs(folder: Path) -> Rootfs:
    """Only the system's own programs: enough to try a `runsc` with a shell."""
    binds = _system_binds()
    _lay_out(folder, binds)
    return Rootfs(folder, tuple(binds), python="", python_path=(), digest=_digest({}))


def _system_binds() -> list[Bind]:
    """`/usr`, its companions where they are folders of their own, and public parts of `/etc`."""
    wanted = [Path("/usr")]
    wanted += [path for name in _LINKED if not (path := Path("/", name)).is_symlink()]
    wanted += [Path("/etc", name) for name in _ETC_FOLDERS]
    return [Bind(path, str(path)) for path in wanted if path.is_dir()]


def _interpreter_binds() -> list[Bind]:
    prefixes = {Path(sys.base_prefix), Path(sys.prefix)}
    for prefix in prefixes:
        if prefix in FORBIDDEN_BINDS or prefix == Path.home():
            raise RuntimeUnavailableError(
                f"the interpreter's prefix is {prefix}, which holds more than an interpreter: "
                "install Python or the virtual environment in a folder of its own"
            )
    return [Bind(prefix, str(prefix)) for prefix in sorted(prefixes)]


def _without_nested(binds: Iterable[Bind]) -> list[Bind]:
    """Leave out what another bind already shows at the same path."""
    kept: list[Bind] = []
    for bind in sorted(binds, key=lambda bind: len(Path(bind.target).parts)):
        shown = any(
            Path(bind.target).is_relative_to(other.target)
            and bind.source == other.source / Path(bind.target).relative_to(other.target)
            for other in kept
        )
        if not shown:
            kept.append(bind)
    return kept


def _lay_out(folder: Path, binds: Iterable[Bind]) -> None:
    for name in ("dev", "etc", "proc", "root", "sys", "tmp", "var/tmp", HOME[1:], RUN_DIR[1:]):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for bind in binds:
        (folder / bind.target[1:]).mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        if Path("/", name).is_symlink() and not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("/", name).readlink())
    for name in _ETC_FILES:
        if (source := Path("/etc", name)).is_file():
            shutil.copyfile(source, folder / "etc" / name)
    for name, text in (
        ("passwd", _PASSWD),
        ("group", _GROUP),
        ("hosts", _HOSTS),
        ("nsswitch.conf", _NSSWITCH),
    ):
        (folder / "etc" / name).write_text(text)
    # The worker's own of today, through the run directory: a checkpoint must not keep an old one.
    resolver = folder / "etc" / "resolv.conf"
    if not resolver.is_symlink():
        resolver.symlink_to(f"{RUN_DIR}/resolv.conf")
    os.chown(folder / HOME[1:], UID, GID)
    (folder / "var" / "tmp").chmod(0o1777)


def _host_digest(binds: Iterable[Bind]) -> str:
    """The interpreter build, libc, the system's release and every distribution's file list."""
    records = sorted(
        (name, distribution.version, hashlib.sha256(_record(distribution)).hexdigest())
        for distribution in importlib.metadata.distributions()
        # The executor has a digest of its own, and its distribution may be an editable one.
        if (name := distribution.metadata["Name"].lower()) != "readie"
    )
    return _digest(
        {
            "python": [sys.version, sys.executable, sys.base_prefix],
            "libc": platform.libc_ver(),
            "system": platform.freedesktop_os_release(),
            "binds": sorted(bind.target for bind in binds),
            "distributions": records,
        }
    )


def _record(distribution: importlib.metadata.Distribution) -> bytes:
    text = distribution.read_text("RECORD") or distribution.read_text("METADATA") or ""
    return text.encode()


def _digest(described: object) -> str:
    canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"

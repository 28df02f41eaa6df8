"""What the file system of a sandbox is made of, and the digest that names it.

`host` root filesystems are a small folder of our own (`/etc/passwd`, mount points) under read-only
binds of exact folders of this machine: the interpreter, the environment, `/usr`, certificates.
Never whole trees that hold people's data: those are refused by name.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.ocispec import HOME, RUN_DIR, Bind

UID = GID = 1000  # the user of every sandbox; it owns nothing but its home folder
PACKAGES = ("readie_executor", "readie_wire", "readie")

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
    interpreter's path inside, ``digest`` a hash (hex) of what a checkpoint captured on it depends
    on, empty when none is meant to be.
    """

    root: Path
    binds: tuple[Bind, ...]
    python: str
    digest: str


def build_host_rootfs(folder: Path) -> Rootfs:
    """Lay out `folder` as the root of sandboxes that run this interpreter and its environment.

    Everything appears at the path it has on the host. Raises `RuntimeUnavailableError` when the
    interpreter lies where it cannot be bound.
    """
    packages = _package_folders()
    wanted = [*_system_folders(), *_prefixes(), *packages]
    binds = tuple(Bind(path, str(path)) for path in _without_nested(wanted))
    _lay_out(folder, binds)
    return Rootfs(folder, binds, sys.executable, _host_digest(binds, packages))


def build_bare_rootfs(folder: Path) -> Rootfs:
    """Only the system's own programs: enough to try a `runsc` with a shell."""
    binds = tuple(Bind(path, str(path)) for path in _system_folders())
    _lay_out(folder, binds)
    return Rootfs(folder, binds, python="", digest="")


def _system_folders() -> list[Path]:
    """`/usr`, its companions where they are folders of their own, and public parts of `/etc`."""
    wanted = [Path("/usr")]
    wanted += [path for name in _LINKED if not (path := Path("/", name)).is_symlink()]
    wanted += [Path("/etc", name) for name in _ETC_FOLDERS]
    return [path for path in wanted if path.is_dir()]


def _prefixes() -> list[Path]:
    prefixes = sorted({Path(sys.base_prefix), Path(sys.prefix)})
    for prefix in prefixes:
        if prefix in FORBIDDEN_BINDS or prefix == Path.home():
            raise RuntimeUnavailableError(
                f"the interpreter's prefix is {prefix}, which holds more than an interpreter: "
                "install Python or the virtual environment in a folder of its own"
            )
    return prefixes


def _package_folders() -> list[Path]:
    """The executor and what it needs of ours, wherever they are installed; never imported here."""
    folders: list[Path] = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise RuntimeUnavailableError(f"{name} is not installed for {sys.executable}")
        folders += map(Path, spec.submodule_search_locations)
    return folders


def _without_nested(paths: Iterable[Path]) -> list[Path]:
    """Leave out what another folder shows already."""
    kept: list[Path] = []
    for path in sorted(paths, key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
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


def _host_digest(binds: Iterable[Bind], packages: Iterable[Path]) -> str:
    """The interpreter build, libc, the system's release, distributions' file lists, our code."""
    records = sorted(
        (name, distribution.version, hashlib.sha256(_record(distribution)).hexdigest())
        for distribution in importlib.metadata.distributions()
        # Ours may be installed in place: its code is hashed below, as it is.
        if (name := distribution.metadata["Name"].lower()) != "readie"
    )
    described = {
        "python": [sys.version, sys.executable, sys.base_prefix],
        "libc": platform.libc_ver(),
        "system": platform.freedesktop_os_release(),
        "binds": sorted(bind.target for bind in binds),
        "distributions": records,
        "executor": [
            (str(file), hashlib.sha256(file.read_bytes()).hexdigest())
            for package in packages
            for file in sorted(package.rglob("*.py"))
        ],
    }
    canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _record(distribution: importlib.metadata.Distribution) -> bytes:
    text = distribution.read_text("RECORD") or distribution.read_text("METADATA") or ""
    return text.encode()

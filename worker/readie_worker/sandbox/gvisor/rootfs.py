"""What the file system of a sandbox is made of, and the digest that names it.

`host` root filesystems are a small folder of our own (`/etc/passwd`, mount points) under read-only
binds of exact folders of this machine: the interpreter, the environment, `/usr`, certificates.
Never whole trees that hold people's data: those are refused by name.
"""

import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor import inventory
from readie_worker.sandbox.gvisor.ocispec import HOME, RUN_DIR, Bind

# The user of every sandbox. Nobody's on any host, so that nothing there is its own: beyond the users that
# systemd makes up (to 65519), below `nobody` (65534), and within what a container maps.
UID = GID = 65530
INVENTORY_DEADLINE_S = 60.0  # an interpreter start and a look at every distribution

_OTHERS_MAY_READ = stat.S_IROTH | stat.S_IXOTH

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


def build_host_rootfs(folder: Path, python: Path) -> Rootfs:
    """Lay out `folder` as the root of sandboxes that run `python` with all that it has installed.

    Everything appears at the path it has on the host. Raises `RuntimeUnavailableError` when the
    interpreter cannot run the executor or lies where it cannot be bound.
    """
    rootfs = describe_host_rootfs(folder, python)
    _lay_out(folder, rootfs.binds)
    return rootfs


def describe_host_rootfs(folder: Path, python: Path) -> Rootfs:
    """What `build_host_rootfs` would give, with nothing written. Raises the same."""
    found = _take_inventory(python)
    if missing := [name for name, places in found["packages"].items() if not places]:
        raise RuntimeUnavailableError(f"{', '.join(missing)} not installed for {python}")
    packages = [Path(place) for places in found["packages"].values() for place in places]
    site_folders = map(Path, found["site_folders"])
    wanted = [*_system_folders(), *_prefixes(found["prefixes"]), *site_folders, *packages]
    binds = tuple(Bind(path, str(path)) for path in _without_nested(wanted))
    return Rootfs(folder, binds, found["executable"], _digest(found, binds))


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


def _prefixes(names: Iterable[str]) -> list[Path]:
    prefixes = [Path(name) for name in names]
    for prefix in prefixes:
        if prefix in FORBIDDEN_BINDS or prefix == Path.home():
            raise RuntimeUnavailableError(
                f"the interpreter's prefix is {prefix}, which holds more than an interpreter: "
                "install Python or the virtual environment in a folder of its own"
            )
        if prefix.stat().st_mode & _OTHERS_MAY_READ != _OTHERS_MAY_READ:
            raise RuntimeUnavailableError(
                f"{prefix} is closed to the user of sandboxes: chmod -R o+rX {prefix}"
            )
    return prefixes


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
    _open_to_all(folder)
    os.chown(folder / HOME[1:], UID, GID)
    (folder / "var" / "tmp").chmod(0o1777)


def _open_to_all(folder: Path) -> None:
    """Whatever umask the worker runs with, the user of the sandbox reads what is laid out."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def _take_inventory(python: Path) -> dict[str, Any]:
    program = Path(inventory.__file__)
    try:
        done = subprocess.run(
            [python, "-I", program],
            check=True,
            capture_output=True,
            text=True,
            timeout=INVENTORY_DEADLINE_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or ""
        raise RuntimeUnavailableError(f"{python} cannot be run: {error} {words}") from error
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _digest(found: Mapping[str, Any], binds: Iterable[Bind]) -> str:
    """The interpreter build, libc, the system's release, distributions' file lists, our code."""
    described = {
        **found,
        "system": platform.freedesktop_os_release(),
        "binds": sorted(bind.target for bind in binds),
    }
    canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()

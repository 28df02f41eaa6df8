"""Mounts of a runtime on the host, all of them below its own folder.

What a sandbox sees of the host is mounted there once more, read-only. In the sandbox's spec that word
binds gVisor's own kernel alone, and code inside may ask it for a user namespace, in which it mounts
the same folder anew for writing: what belongs to the sandbox's user on the host would then be its to
change. Here the kernel of the host refuses.
"""

import ctypes
import os
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.rootfs import Rootfs

TMPFS_SIZE = "64m"  # of all run directories together: sockets, specs and logs, a few kB each
COMMAND_DEADLINE_S = 10.0

# System calls since Linux 5.12, which the C library of Debian 12 does not wrap all; their numbers are the
# same on every architecture. Values from the kernel's uapi/linux/mount.h and fcntl.h.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_PRIVATE = 1 << 18


def mount_tmpfs(folder: Path) -> None:
    """Put a tmpfs on `folder` unless one is there. Raises `RuntimeUnavailableError`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.is_mount():
        return
    options = f"nosuid,nodev,noexec,mode=0700,size={TMPFS_SIZE}"
    command = ["mount", "-t", "tmpfs", "-o", options, "readie-run", str(folder)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S
    )
    if done.returncode != 0:
        raise RuntimeUnavailableError(
            f"cannot mount a tmpfs on {folder}: {done.stderr.strip()}; "
            "run the worker as root with the right to mount"
        )


def shown_read_only(rootfs: Rootfs, folder: Path) -> Rootfs:
    """The same root filesystem, by way of read-only mounts in `folder`.

    Raises `RuntimeUnavailableError`.
    """
    binds = tuple(
        replace(bind, source=_mounted(bind.source, folder / str(number)))
        for number, bind in enumerate(rootfs.binds)
    )
    return replace(rootfs, root=_mounted(rootfs.root, folder / "root"), binds=binds)


def show_read_only(source: Path, target: Path) -> None:
    """Mount ``source``, and all that is mounted in it, at ``target`` as well.

    It is complete and closed before it appears: not for a moment can anything be written by way of
    ``target``, or removed with it. Raises `RuntimeUnavailableError`.
    """
    target.mkdir(parents=True, exist_ok=True)
    attributes = struct.pack("=QQQQ", _RDONLY | _NOSUID | _NODEV, 0, _PRIVATE, 0)
    everything = _AT_EMPTY_PATH | _AT_RECURSIVE
    try:
        tree = _call(
            _OPEN_TREE,
            *(_AT_FDCWD, os.fsencode(source)),
            _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC,
        )
        try:
            _call(_MOUNT_SETATTR, tree, b"", everything, attributes, len(attributes))
            _call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
        finally:
            os.close(tree)
    except OSError as error:
        raise RuntimeUnavailableError(
            f"cannot mount {source} read-only on {target}: {error.strerror}; run the worker as root "
            "with the right to mount, on Linux 5.12 or newer"
        ) from error


def unmount_below(folder: Path) -> bool:
    """Take off all that is mounted in `folder`, lazily, since a dying sandbox may still hold it.

    Whether nothing is left: only then may the folder be removed.
    """
    if places := _mounted_below(folder):
        command = ["umount", "--lazy", *map(str, reversed(places))]
        subprocess.run(command, check=False, capture_output=True, timeout=COMMAND_DEADLINE_S)
    return not _mounted_below(folder)


def _mounted(source: Path, target: Path) -> Path:
    show_read_only(source, target)
    return target


def _mounted_below(folder: Path) -> list[Path]:
    """In the order in which they were mounted."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    # number, parent, device, root, place, …; with blanks and the like as octal escapes
    places = [line.split()[4].decode("unicode_escape").encode("latin-1") for line in lines]
    paths = [Path(os.fsdecode(place)) for place in places]
    top = folder.resolve()
    return [path for path in paths if path.is_relative_to(top)]


def _call(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [
        ctypes.c_long(one) if isinstance(one, int) else ctypes.c_char_p(one) for one in arguments
    ]
    answer: int = libc.syscall(ctypes.c_long(number), *given)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer

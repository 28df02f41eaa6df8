"""The root filesystem of the host: exact folders, never people's data, and a digest."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor import rootfs as rootfs_module
from readie_worker.sandbox.gvisor.rootfs import FORBIDDEN_BINDS, build_host_rootfs
from support.interpreters import interpreter_with

pytestmark = pytest.mark.usefixtures("runsc")


def test_only_exact_folders_are_bound(tmp_path: Path) -> None:
    rootfs = build_host_rootfs(tmp_path, Path(sys.executable))
    sources = {bind.source for bind in rootfs.binds}

    assert not sources & FORBIDDEN_BINDS
    assert Path(sys.base_prefix) in sources or Path("/usr") in sources
    assert not any(path.is_relative_to("/var") for path in sources)
    assert not any(path.name in ("shadow", "private") for path in sources)


def test_no_folder_is_bound_inside_another(tmp_path: Path) -> None:
    binds = build_host_rootfs(tmp_path, Path(sys.executable)).binds

    for bind in binds:
        assert not any(
            bind.source.is_relative_to(other.source) for other in binds if other is not bind
        )


def test_the_digest_is_the_same_twice_and_wherever_it_is_laid_out(tmp_path: Path) -> None:
    first = build_host_rootfs(tmp_path / "one", Path(sys.executable))
    second = build_host_rootfs(tmp_path / "two", Path(sys.executable))

    assert first.digest == second.digest


def test_the_name_by_which_the_interpreter_is_called_does_not_matter(tmp_path: Path) -> None:
    python = interpreter_with(tmp_path / "python", {"mine": ""})
    names = ["python", "python3"]

    found = [build_host_rootfs(tmp_path / "root", python.with_name(name)) for name in names]

    assert found[0] == found[1]


def test_an_installed_package_changes_the_digest(tmp_path: Path) -> None:
    python = interpreter_with(tmp_path / "python", {"mine": ""})
    before = build_host_rootfs(tmp_path / "one", python)
    [site_packages] = (tmp_path / "python").glob("lib/python*/site-packages")
    (site_packages / "mine-1.0.dist-info").mkdir()
    (site_packages / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")

    after = build_host_rootfs(tmp_path / "one", python)

    assert before.digest != after.digest


def test_an_interpreter_in_a_home_folder_as_a_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inventory(python: Path) -> dict[str, Any]:
        packages = {"readie_executor": ["/usr/lib/x"]}
        return {"packages": packages, "site_folders": [], "prefixes": ["/root"]}

    monkeypatch.setattr(rootfs_module, "_take_inventory", inventory)

    with pytest.raises(RuntimeUnavailableError, match="holds more than an interpreter"):
        build_host_rootfs(tmp_path, Path("/root/bin/python"))


def test_an_interpreter_without_the_executor_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')  # type: ignore[attr-defined]
    bare.chmod(0o755)

    with pytest.raises(RuntimeUnavailableError, match=r"readie_executor.* not installed"):
        build_host_rootfs(tmp_path / "root", bare)


def test_something_that_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailableError, match="cannot be run"):
        build_host_rootfs(tmp_path, Path("/bin/false"))


def test_the_inventory_is_plain_json_of_another_interpreter(tmp_path: Path) -> None:
    found = rootfs_module._take_inventory(Path(sys.executable))

    assert json.loads(json.dumps(found)) == found
    assert {name for name, *_ in found["distributions"]} >= {"cloudpickle", "pytest"}


def test_whatever_the_umask_the_sandboxes_user_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        build_host_rootfs(tmp_path / "root", Path(sys.executable))
    finally:
        os.umask(before)

    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in (tmp_path / "root" / "etc").iterdir()
        if not path.is_symlink()
    }
    assert (modes["passwd"], modes["ssl"]) == (0o644, 0o755)
    assert (tmp_path / "root").stat().st_mode & 0o777 == 0o755


def test_an_environment_that_others_cannot_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    python = interpreter_with(tmp_path / "python", {"mine": ""})
    (tmp_path / "python").chmod(0o700)

    with pytest.raises(RuntimeUnavailableError, match="chmod -R"):
        build_host_rootfs(tmp_path / "root", python)

"""What a sandbox is made to look like, whatever it is started for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from readie_worker.sandbox.gvisor.ocispec import Bind, Shape, build_spec, fingerprint

SHAPE = Shape(
    root=Path("/var/lib/readie/root"),
    binds=(Bind(Path("/tmp/venv"), "/tmp/venv"), Bind(Path("/usr"), "/usr")),
    command=("/usr/bin/python3", "-I", "-m", "readie_executor"),
    uid=1000,
    gid=1000,
    open_files=4096,
    shm_bytes=1 << 20,
    tmp_bytes=1 << 20,
)


def spec(shape: Shape = SHAPE, **arguments: Any) -> dict[str, Any]:
    given = {"run_dir": Path("/run/one"), "environment": {"A": "1"}, "network": "none"}
    return build_spec(shape, **{**given, **arguments})


def test_a_sandbox_has_no_capability_and_can_gain_none() -> None:
    process = spec()["process"]

    assert process["noNewPrivileges"] is True
    assert set(process["capabilities"]) >= {"bounding", "effective", "permitted", "ambient"}
    assert not any(process["capabilities"].values())
    assert process["user"] == {"uid": 1000, "gid": 1000}


def test_every_folder_of_the_host_is_read_only_the_run_directory_too() -> None:
    binds = [mount for mount in spec()["mounts"] if mount["type"] == "bind"]

    assert {mount["destination"] for mount in binds} == {"/tmp/venv", "/usr", "/run/readie"}
    assert all("ro" in mount["options"] for mount in binds)


def test_a_bind_inside_a_private_folder_is_mounted_after_it() -> None:
    targets = [mount["destination"] for mount in spec()["mounts"]]

    assert targets.index("/tmp") < targets.index("/tmp/venv")


def test_private_folders_have_a_size() -> None:
    sized = {mount["destination"]: mount.get("options", []) for mount in spec()["mounts"]}

    assert "size=1048576" in sized["/dev/shm"]
    assert "size=1048576" in sized["/tmp"]


def test_a_network_namespace_is_made_joined_or_shared_with_the_host() -> None:
    def network(**arguments: Any) -> list[dict[str, str]]:
        return [n for n in spec(**arguments)["linux"]["namespaces"] if n["type"] == "network"]

    assert network(network="none") == [{"type": "network"}]
    assert network(network="sandbox", netns=Path("/run/netns/a")) == [
        {"type": "network", "path": "/run/netns/a"}
    ]
    assert network(network="host") == []


def test_the_fingerprint_is_that_of_the_shape_wherever_the_host_keeps_it() -> None:
    assert fingerprint(replace(SHAPE, root=Path("/elsewhere"))) == fingerprint(SHAPE)


def test_every_part_of_the_shape_that_a_checkpoint_depends_on_changes_the_fingerprint() -> None:
    others = [
        replace(SHAPE, binds=SHAPE.binds[:1]),
        replace(SHAPE, command=(*SHAPE.command, "-v")),
        replace(SHAPE, uid=0),
        replace(SHAPE, open_files=64),
        replace(SHAPE, shm_bytes=2 << 20),
        replace(SHAPE, tmp_bytes=2 << 20),
    ]

    assert len({fingerprint(shape) for shape in (SHAPE, *others)}) == len(others) + 1

from pathlib import Path

import pytest

from readie_worker.sizing import MemoryShares, core_count, memory_total

GIB = 1 << 30


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def membership(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "self"
    path.write_text(text)
    return path


def test_without_limits_the_machine_itself_is_the_limit(tmp_path: Path, cgroups: Path) -> None:
    own = membership(tmp_path, "0::/\n")
    assert memory_total(cgroups, own) > 0
    assert core_count(cgroups, own) >= 1


def test_the_tightest_limit_of_the_version_2_tree_counts(tmp_path: Path, cgroups: Path) -> None:
    own = membership(tmp_path, "0::/pod/worker\n")
    write(cgroups / "pod", memory__max=str(GIB // 2), cpu__max="max 100000")
    write(cgroups / "pod" / "worker", memory__max="max", cpu__max="50000 100000")
    assert memory_total(cgroups, own) == int(GIB // 2 * 0.9)
    assert core_count(cgroups, own) == 1


def test_limits_of_version_1_count(tmp_path: Path, cgroups: Path) -> None:
    own = membership(tmp_path, "5:memory:/job\n4:cpu,cpuacct:/job\n")
    write(cgroups / "memory" / "job", memory__limit_in_bytes=str(GIB))
    write(cgroups / "cpu,cpuacct" / "job", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    assert memory_total(cgroups, own) == int(GIB * 0.9)
    assert core_count(cgroups, own) == 1


def test_the_number_that_version_1_gives_for_no_limit_is_none(
    tmp_path: Path, cgroups: Path
) -> None:
    own = membership(tmp_path, "5:memory:/\n4:cpu:/\n")
    write(cgroups / "memory", memory__limit_in_bytes="9223372036854771712")
    write(cgroups / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    free = membership(tmp_path, "")
    assert memory_total(cgroups, own) == memory_total(cgroups, free)


@pytest.mark.parametrize("total", [GIB // 2, GIB, 2 * GIB, 4 * GIB, 64 * GIB])
def test_shares_add_up_and_leave_room_for_a_call_of_the_default_size(total: int) -> None:
    shares = MemoryShares.of(total)
    assert shares.calls + shares.resident + shares.pool == total
    assert min(shares.calls, shares.resident, shares.pool) >= 0
    assert shares.calls >= min(total, GIB)

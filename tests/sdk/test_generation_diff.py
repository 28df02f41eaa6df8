from typing import Any

from readie._cli.generation_diff import difference


def told(generation: str, **changes: Any) -> dict[str, Any]:
    """A generation as a gateway tells it."""
    return {
        "generation": generation,
        "distributions": {"numpy": "1.0", "pandas": "2.0"},
        "checkpoints": [checkpoint(0), checkpoint(1, "numpy")],
        "files": [file("a", 10), file("b", 20)],
        **changes,
    }


def checkpoint(number: int, *imports: str, digest: str = "same") -> dict[str, Any]:
    return {
        "id": f"checkpoint_{number}",
        "imports": list(imports),
        "size_mb": 1.0,
        "size": 10,
        "digest": digest,
    }


def file(sha256: str, size: int) -> dict[str, Any]:
    return {"name": sha256, "sha256": sha256, "size": size}


def test_packages_are_added_removed_and_changed() -> None:
    new = told("new", distributions={"numpy": "1.1", "torch": "3.0"})
    assert difference(told("old"), new)["packages"] == {
        "added": {"torch": "3.0"},
        "removed": {"pandas": "2.0"},
        "changed": {"numpy": ["1.0", "1.1"]},
    }


def test_checkpoints_are_the_same_where_they_import_the_same() -> None:
    moved = [checkpoint(0, "torch"), checkpoint(1), checkpoint(2, "numpy", digest="other")]
    found = difference(told("old"), told("new", checkpoints=moved))["checkpoints"]
    assert [one["imports"] for one in found["added"]] == [["torch"]]
    assert found["removed"] == []
    assert [(one["id"], one["was"]["id"]) for one in found["changed"]] == [
        ("checkpoint_2", "checkpoint_1")
    ]


def test_bytes_are_new_once_and_only_where_the_old_one_has_not_the_same() -> None:
    files = [file("b", 20), file("c", 5), file("c", 5)]
    assert difference(told("old"), told("new", files=files))["bytes"] == {"total": 30, "new": 5}


def test_what_is_not_known_of_one_is_not_compared() -> None:
    bare = told("old", distributions=None, files=None)
    found = difference(bare, told("new"))
    assert found["packages"] is None
    assert found["bytes"] is None
    unknown = [{**checkpoint(0), "imports": None}]
    found = difference(told("old", checkpoints=unknown), told("new", checkpoints=unknown))
    assert not any(found["checkpoints"].values())

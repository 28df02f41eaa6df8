"""The folder of one fork runtime, with private folders for its sandboxes."""

from pathlib import Path

from readie_worker.sandbox.owned_folders import OwnedFolder

PREFIX = "fork-"
# Others may pass through to the folder that is theirs, but list nothing.
PASS_THROUGH = 0o711
PRIVATE = 0o700


class RunFolder:
    """A folder of this runtime's own inside ``parent``, which several runtimes may share."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(mode=PASS_THROUGH, parents=True, exist_ok=True)
        self._owned = OwnedFolder(parent, PREFIX, PASS_THROUGH)
        self.path = self._owned.path

    def create(self, name: str) -> Path:
        """A private folder of that name."""
        folder = self.path / name
        folder.mkdir(mode=PRIVATE)
        return folder

    def remove(self) -> None:
        """Everything in it. Idempotent."""
        self._owned.remove()

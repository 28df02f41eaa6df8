"""The data folder: what the commands hand to each other, by flavor."""

from dataclasses import dataclass
from pathlib import Path

from readie_pipeline.corpus.dataset import Dataset, dump_dataset, load_dataset
from readie_pipeline.errors import OutputError, PipelineError
from readie_pipeline.measure.metadata import Metadata, dump_metadata, load_metadata


class MissingInputError(PipelineError):
    """A file that an earlier command writes is not there; the message names that command."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """``datasets/{flavor}.json`` and ``metadata/{flavor}.json`` below ``folder``."""

    folder: Path
    flavor: str

    @property
    def dataset(self) -> Path:
        return self.folder / "datasets" / f"{self.flavor}.json"

    @property
    def metadata(self) -> Path:
        return self.folder / "metadata" / f"{self.flavor}.json"

    @property
    def gathered(self) -> Path:
        """Example code of a collecting run that has not ended."""
        return self.dataset.with_suffix(".journal")

    @property
    def answers(self) -> Path:
        """What services have said about names, whichever flavor asked."""
        return self.folder / "datasets" / "answers.journal"

    @property
    def journal(self) -> Path:
        """Answers of a measuring run that has not ended."""
        return self.metadata.with_suffix(".journal")

    def read_dataset(self) -> Dataset:
        return load_dataset(read_input(self.dataset, "readie-pipeline corpus"))

    def read_metadata(self) -> Metadata:
        return load_metadata(read_input(self.metadata, "readie-pipeline analyze"))

    def write_dataset(self, dataset: Dataset) -> None:
        write_whole(self.dataset, dump_dataset(dataset))

    def write_metadata(self, metadata: Metadata) -> None:
        write_whole(self.metadata, dump_metadata(metadata))


def write_whole(path: Path, data: bytes) -> None:
    """Readers see the old file or the new one. Raises `OutputError`."""
    draft = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def read_input(path: Path, command: str) -> bytes:
    """Read what ``command`` writes. Raises `MissingInputError`, which names it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingInputError(f"{path} is not there; `{command}` writes it") from None
    except OSError as error:
        raise MissingInputError(f"{path} cannot be read: {error.strerror}") from error

"""Which library's function loads a dataset, model or tokenizer, told from its files."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from readie_pipeline.errors import MeasureError
from readie_pipeline.measure.probing import Call
from readie_wire.catalogue import ResourceType

_SKLEARN = "sklearn:"
# What scikit-learn brings with it; everything else it fetches once and keeps.
_BUNDLED = frozenset({"breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine"})
_LOCAL = {"local_files_only": True}


@dataclass(frozen=True, slots=True)
class Loader:
    """``module.function`` loads a folder that has a ``file``, or a file with such an ending.

    ``whole``: it takes the folder, not the file in it. ``only``: what has such a file is this
    library's own, and no other loader will do.
    """

    kind: ResourceType
    module: str
    function: str
    file: str
    whole: bool = False
    only: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    def takes(self, path: Path) -> Sequence[Path]:
        """What of ``path`` its function would be called with."""
        if path.is_file():
            return [path] if not self.whole and path.suffix == Path(self.file).suffix else []
        found = sorted(one for one in path.glob(self.file) if one.is_file())
        return [path] if found and self.whole else found


_MODEL, _TOKENIZER, _DATASET = ResourceType.MODEL, ResourceType.TOKENIZER, ResourceType.DATASET

# The first that fits and whose library is installed is taken.
LOADERS = (
    Loader(
        _MODEL,
        "transformers",
        "AutoModel.from_pretrained",
        "config.json",
        whole=True,
        only=True,
        options=_LOCAL,
    ),
    Loader(_MODEL, "joblib", "load", "*.joblib"),
    Loader(_MODEL, "pickle", "load", "*.pkl"),
    Loader(_MODEL, "pickle", "load", "*.pickle"),
    Loader(_MODEL, "safetensors.numpy", "load_file", "*.safetensors"),
    Loader(_MODEL, "torch", "load", "*.pt", options={"map_location": "cpu"}),
    Loader(
        _TOKENIZER,
        "transformers",
        "AutoTokenizer.from_pretrained",
        "tokenizer_config.json",
        whole=True,
        options=_LOCAL,
    ),
    Loader(_TOKENIZER, "tokenizers", "Tokenizer.from_file", "tokenizer.json"),
    Loader(_DATASET, "datasets", "load_from_disk", "state.json", whole=True, only=True),
    Loader(_DATASET, "datasets", "load_from_disk", "dataset_dict.json", whole=True, only=True),
    Loader(_DATASET, "datasets", "load_dataset", "*", whole=True),
    Loader(_DATASET, "pandas", "read_csv", "*.csv"),
    Loader(_DATASET, "pandas", "read_parquet", "*.parquet"),
    Loader(_DATASET, "pandas", "read_json", "*.jsonl", options={"lines": True}),
    Loader(_DATASET, "numpy", "load", "*.npy"),
    Loader(_DATASET, "numpy", "load", "*.npz"),
)

LIBRARIES = frozenset(loader.library for loader in LOADERS) | {"sklearn"}


def call_for(kind: ResourceType, path: Path, installed: Container[str]) -> Call:
    """How to load what is at ``path``; ``installed`` are names of modules.

    Raises `MeasureError`: nothing here is known, its library is not installed, or there are several
    files of which one would have to be named.
    """
    missing: dict[str, None] = {}
    for loader, found in _fitting(kind, path):
        if loader.library not in installed and loader.library != "pickle":
            missing[loader.library] = None
            if loader.only:
                break
        elif len(found) > 1:
            raise MeasureError(f"{path} has {len(found)} files {loader.file}: name one of them")
        else:
            return Call(loader.module, loader.function, str(found[0]), loader.options)
    if missing:
        raise MeasureError(f"loading it needs {' or '.join(missing)}, which is not installed")
    raise MeasureError(f"{path} holds no {kind} of a kind that is known here")


def sklearn_call(name: str, folder: Path, installed: Container[str]) -> Call | None:
    """How to load scikit-learn's own ``sklearn:iris``, or what it has fetched into ``folder``.

    ``None`` when ``name`` is no such dataset or not here.
    """
    dataset = name.removeprefix(_SKLEARN)
    if dataset == name or not f"fetch_{dataset}".isidentifier() or "sklearn" not in installed:
        return None
    if dataset in _BUNDLED:
        return Call("sklearn.datasets", f"load_{dataset}")
    if not folder.is_dir():
        return None
    options = {"data_home": str(folder), "download_if_missing": False}
    return Call("sklearn.datasets", f"fetch_{dataset}", options=options)


def _fitting(kind: ResourceType, path: Path) -> Iterator[tuple[Loader, Sequence[Path]]]:
    for loader in LOADERS:
        if loader.kind is kind and (found := loader.takes(path)):
            yield loader, found

"""Workloads from a folder of scripts and notebooks."""

import hashlib
import io
import os
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from readie_pipeline.corpus.dataset import Resources, Workload
from readie_pipeline.corpus.notebooks import NotebookError, python_cells, written_modules
from readie_pipeline.corpus.reading import read_code, without_local
from readie_pipeline.corpus.sources import Found
from readie_pipeline.errors import CorpusError

MAX_FILE_BYTES = 64 << 20  # notebooks keep their pictures inside
_MODULE_FILES = (".py", ".so", ".pyd", ".pyx")  # `fast.cpython-311-x86_64-linux-gnu.so` is `fast`
_SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages"})


def read_folder(folder: Path, installed: Collection[str] = ()) -> Iterator[Found]:
    """Every ``.py`` and ``.ipynb`` below ``folder``, sorted. Raises `CorpusError`: no such folder.

    Environments, build results and hidden folders are left out, links are not followed. Modules
    that lie beside a file, or above it up to ``folder``, are its own and no packages. So are those
    that lie anywhere below ``folder``, unless a package of that name is ``installed``: a plan knows
    installed packages only, so a public one that is taken for the folder's own is not missed there.
    """
    if not folder.is_dir():
        raise CorpusError(f"{folder} is no folder")
    paths = list(_files(folder))
    elsewhere = module_names(path.relative_to(folder) for path in paths).difference(installed)
    for path in paths:
        yield _read(folder, path, elsewhere)


def module_names(files: Iterable[PurePath]) -> set[str]:
    """What files, named from the top of their tree, can be imported as, from whichever folder of it."""
    scripts = [file for file in files if file.suffix == ".py"]
    return {file.stem for file in scripts} | {
        part for file in scripts for part in file.parts[:-1] if part.isidentifier()
    }


def _read(folder: Path, path: Path, elsewhere: set[str]) -> Found:
    relative = path.relative_to(folder)
    name = relative.as_posix()
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return Found(name, None, [f"is larger than {MAX_FILE_BYTES >> 20} MiB"])
        data = path.read_bytes()
        notebook = path.suffix == ".ipynb"
        codes = python_cells(data) if notebook else [_decode(data)]
        own = elsewhere | (written_modules(data) if notebook else set())
    except (OSError, NotebookError, SyntaxError, UnicodeDecodeError) as error:
        return Found(name, None, [str(error)])
    reading = read_code(codes)
    resources = without_local(reading.resources, own | _local_modules(folder, path.parent))
    workload = Workload(
        id=hashlib.sha256(name.encode("utf-8", "surrogateescape") + b"\0" + data).hexdigest()[:12],
        source=f"folder:{name}",
        resources=_without_paths(resources, folder, path.parent),
        domain=relative.parts[0] if len(relative.parts) > 1 else "",
        code=tuple(codes),
    )
    return Found(name, workload, reading.problems)


def _without_paths(resources: Resources, root: Path, start: Path) -> Resources:
    """Leave out what the code may call a model or dataset, but lies there as a folder of its own."""

    def kept(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(n for n in names if not (start / n).exists() and not (root / n).exists())

    return replace(
        resources,
        datasets=kept(resources.datasets),
        models=kept(resources.models),
        tokenizers=kept(resources.tokenizers),
    )


def _decode(data: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")
        )
        for name in sorted(files):
            path = Path(parent, name)
            # A pipe or a device of that name would be waited for.
            if path.suffix in (".py", ".ipynb") and path.is_file() and not path.is_symlink():
                yield path


def _local_modules(root: Path, start: Path) -> set[str]:
    """Names that ``import`` finds in ``start`` or in a folder above it, ``root`` and it included."""
    found = {root.resolve().name}
    for folder in (start, *start.parents):
        for entry in os.scandir(folder):
            if entry.name.endswith(_MODULE_FILES) and entry.is_file():
                found.add(entry.name.partition(".")[0])
            elif entry.is_dir() and _holds_python(Path(entry.path)):
                found.add(entry.name)
        if folder == root:
            break
    return found


def _holds_python(folder: Path) -> bool:
    return next(folder.glob("*.py"), None) is not None

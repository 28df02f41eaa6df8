"""Which datasets, models and tokenizers code strings name, read from their text and never by running it.

A name counts when it stands in the call as a constant, or as a variable that the whole text binds
once, to a constant. What is computed is not found, and paths are no names. Everything is bounded.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from readie_wire.extracting import MAX_NODES, MAX_SOURCE_CHARACTERS

MAX_NAMES = 200  # of one workload; a notebook that compares models has a dozen
# Where a dataset lies that is not on the Hugging Face hub; a hub's own names hold no colon.
KAGGLE = "kaggle:"
SKLEARN = "sklearn:"

# What the hub takes for the name of a repository: `gpt2`, `owner/name`.
_HUB_NAME = re.compile(r"(?=.{1,96}$)\w[\w.-]*(?:/\w[\w.-]*)?", re.ASCII)
_KAGGLE_NAME = re.compile(r"([\w-]{1,80}/[\w-]{1,80})(?:/versions/\d+)?", re.ASCII)
_FILE = re.compile(
    r".*\.(?:py|csv|json|jsonl|parquet|txt|zip|tsv|pt|pth|bin|h5|onnx)", re.IGNORECASE
)
# `load_dataset("csv", data_files=…)`: formats of the user's own files.
_FORMATS = frozenset(
    {"arrow", "audiofolder", "csv", "generator", "imagefolder", "json", "pandas", "parquet", "sql",
     "text", "videofolder", "webdataset", "xml"}
)  # fmt: skip
# `X.from_pretrained(…)` of these loads settings of a repository, not what it is about.
_SETTINGS = ("Config", "Processor", "Extractor", "Scheduler")
# What `sklearn.datasets` has functions for, to download it or to read it from the package.
_OF_SKLEARN = frozenset(
    {"fetch_20newsgroups", "fetch_20newsgroups_vectorized", "fetch_california_housing",
     "fetch_covtype", "fetch_kddcup99", "fetch_lfw_pairs", "fetch_lfw_people",
     "fetch_olivetti_faces", "fetch_rcv1", "fetch_species_distributions", "load_breast_cancer",
     "load_diabetes", "load_digits", "load_iris", "load_linnerud", "load_wine"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """Names in the order in which the text has them."""

    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()


def find_named(codes: Iterable[str]) -> Named:
    """The names in code strings that run one after the other; broken ones are left out."""
    search = _Search()
    for code in codes:
        if len(code) <= MAX_SOURCE_CHARACTERS:
            search.read(code)
    return search.found()


@dataclass(slots=True)
class _Search:
    """``names`` maps what the text calls a thing to its dotted path; ``texts`` variables to constants."""

    names: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str | None] = field(default_factory=dict)
    calls: list[ast.Call] = field(default_factory=list)

    def read(self, code: str) -> None:
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for count, node in enumerate(ast.walk(tree)):
            if count >= MAX_NODES:
                return
            self._visit(node)

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    self.names[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            case ast.ImportFrom(level=0, module=str(module), names=aliases):
                for alias in aliases:
                    self.names[alias.asname or alias.name] = f"{module}.{alias.name}"
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                text = _text(value)
                # Bound twice, it may be either: then it is neither.
                self.texts[name] = text if self.texts.get(name, text) == text else None
            case ast.Call():
                self.calls.append(node)

    def found(self) -> Named:
        datasets: dict[str, None] = {}
        models: dict[str, None] = {}
        tokenizers: dict[str, None] = {}
        into = {"dataset": datasets, "model": models, "tokenizer": tokenizers}
        for call in sorted(self.calls, key=lambda call: (call.lineno, call.col_offset)):
            for kind, name in self._named_by(call):
                if sum(map(len, into.values())) < MAX_NAMES:
                    into[kind][name] = None
        return Named(tuple(datasets), tuple(models), tuple(tokenizers))

    def _named_by(self, call: ast.Call) -> Iterator[tuple[str, str]]:
        path = self._path(call.func)
        top, _, _ = path.partition(".")
        owner, _, function = path.rpartition(".")
        if function == "from_pretrained":
            kind = _kind_of(owner.rpartition(".")[2])
            name = self._hub(call, 0, "pretrained_model_name_or_path", "model_id", "repo_id")
            if kind and name:
                yield kind, name
        elif top == "datasets" and function in ("load_dataset", "load_dataset_builder"):
            name = self._hub(call, 0, "path")
            if name and name not in _FORMATS:
                yield "dataset", name
        elif top == "sentence_transformers" and function in ("SentenceTransformer", "CrossEncoder"):
            name = self._hub(call, 0, "model_name_or_path", "model_name")
            if name:
                yield "model", name if "/" in name else f"sentence-transformers/{name}"
        elif path == "transformers.pipeline":
            yield from self._hub_as("model", call, 1, "model")
            yield from self._hub_as("tokenizer", call, 3, "tokenizer")
        elif top == "huggingface_hub" and function in ("snapshot_download", "hf_hub_download"):
            kind = self._argument(call, -1, "repo_type") or "model"
            if kind in ("model", "dataset"):
                yield from self._hub_as(kind, call, 0, "repo_id")
        elif top == "kagglehub" and function in ("dataset_download", "dataset_load"):
            place = int(function == "dataset_load")  # behind the adapter
            handle = _KAGGLE_NAME.fullmatch(self._argument(call, place, "handle") or "")
            if handle:
                yield "dataset", KAGGLE + handle[1]
        elif owner == "sklearn.datasets" and function in _OF_SKLEARN:
            yield "dataset", SKLEARN + function.partition("_")[2]

    def _path(self, node: ast.expr) -> str:
        """The dotted path of what is called, its first part resolved; empty when it is computed."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.names.get(node.id, node.id), *reversed(parts)])

    def _hub_as(
        self, kind: str, call: ast.Call, place: int, keyword: str
    ) -> Iterator[tuple[str, str]]:
        if name := self._hub(call, place, keyword):
            yield kind, name

    def _hub(self, call: ast.Call, place: int, *keywords: str) -> str | None:
        text = self._argument(call, place, *keywords)
        if text is None or not _HUB_NAME.fullmatch(text) or _FILE.fullmatch(text):
            return None
        return text

    def _argument(self, call: ast.Call, place: int, *keywords: str) -> str | None:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        node = call.args[place] if 0 <= place < len(call.args) else None
        for keyword in keywords:
            node = node or given.get(keyword)
        if isinstance(node, ast.Name):
            return self.texts.get(node.id)
        return _text(node)


def _kind_of(owner: str) -> str | None:
    if "Tokenizer" in owner:
        return "tokenizer"
    return None if owner.endswith(_SETTINGS) else "model"


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

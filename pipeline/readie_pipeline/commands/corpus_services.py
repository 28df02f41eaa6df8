"""The services that `readie-pipeline corpus` reads from and asks, and how it is let in."""

import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import platformdirs

from readie_pipeline.commands.options import Decorator, Positive
from readie_pipeline.corpus.checking import Owners
from readie_pipeline.corpus.opening import Deferred, open_hugging_face, open_kaggle, open_model
from readie_pipeline.corpus.package_index import IndexSettings, PackageIndex
from readie_pipeline.corpus.patience import DEADLINE_S, Patience
from readie_pipeline.corpus.sources import Source
from readie_pipeline.errors import CorpusError

if TYPE_CHECKING:  # they come with an extra
    from readie_pipeline.corpus.hugging_face import HuggingFace
    from readie_pipeline.corpus.kaggle import Kaggle

_OPTIONS: Sequence[Decorator] = (
    click.option(
        "--kaggle",
        "kaggle_searches",
        metavar="SEARCH",
        multiple=True,
        help="Notebooks on Kaggle that this finds; KAGGLE_USERNAME and KAGGLE_KEY, or kaggle.json.",
    ),
    click.option(
        "--hugging-face",
        "space_searches",
        metavar="SEARCH",
        multiple=True,
        help="Spaces on the Hugging Face hub that this finds; HF_TOKEN, or a login.",
    ),
    click.option(
        "--model", help="A hosted model that writes example programs; OPENAI_API_KEY, or Azure's."
    ),
    click.option(
        "--domain",
        "domains",
        metavar="FIELD",
        multiple=True,
        help="What the model's programs are about; once for each field.",
    ),
    click.option(
        "--model-url", help="Of a service that speaks as OpenAI's does.  [default: OPENAI_BASE_URL]"
    ),
    click.option("--azure-endpoint", help="Of an Azure resource; --model names its deployment."),
    click.option("--azure-api-version", help="[default: OPENAI_API_VERSION]"),
    click.option(
        "--limit",
        type=click.IntRange(1, 10_000),
        default=50,
        show_default=True,
        help="Notebooks, Spaces or programs of each search and field.",
    ),
    click.option("--kaggle-url", help="Of an API that is not Kaggle's own."),
    click.option("--hugging-face-url", help="Of another hub.  [default: HF_ENDPOINT]"),
    click.option(
        "--package-index",
        "index_urls",
        metavar="URL",
        multiple=True,
        help="Knows which packages there are.  [default: as pip is set up]",
    ),
    click.option(
        "--service-timeout",
        type=Positive(),
        default=DEADLINE_S,
        show_default=True,
        help="Seconds that a service may take to answer; a hosted model gets four times that.",
    ),
)
_WRITING = 4  # a model writes while it is waited for: deadlines that its answer gets


@dataclass(frozen=True)
class Services:
    """The options. Each service is opened once, and only when it is needed."""

    kaggle_searches: Sequence[str]
    space_searches: Sequence[str]
    model: str | None
    domains: Sequence[str]
    model_url: str | None
    azure_endpoint: str | None
    azure_api_version: str | None
    limit: int
    kaggle_url: str | None
    hugging_face_url: str | None
    index_urls: Sequence[str]
    service_timeout: float

    def __post_init__(self) -> None:
        if (self.model is None) == bool(self.domains):
            raise click.UsageError("--model writes about each --domain: give both, or neither")
        if self.model_url and self.azure_endpoint:
            raise click.UsageError("give either --model-url or --azure-endpoint")

    def __bool__(self) -> bool:
        """Whether example code is wanted of any."""
        return bool(self.kaggle_searches or self.space_searches or self.model)

    @property
    def patience(self) -> Patience:
        return Patience(self.service_timeout)

    @cached_property
    def _opened(self) -> ExitStack:
        return ExitStack()

    def close(self) -> None:
        """Let all connections go."""
        self._opened.close()

    @cached_property
    def _kaggle(self) -> "Kaggle":
        kaggle = open_kaggle(kaggle_login(), self.patience, self.kaggle_url)
        return self._opened.enter_context(closing(kaggle))

    @cached_property
    def _hugging_face(self) -> "HuggingFace":
        hub = open_hugging_face(self.patience, self.hugging_face_url)
        return self._opened.enter_context(closing(hub))

    def sources(self) -> Iterator[Source]:
        """Raises `CorpusError`: a library or a key is missing."""
        for search in self.kaggle_searches:
            yield self._kaggle.notebooks(search, self.limit)
        for search in self.space_searches:
            yield self._hugging_face.spaces(search, self.limit)
        if self.model is not None:
            model = open_model(
                self.model,
                self.domains,
                self.limit,
                Patience(self.service_timeout * _WRITING),
                base_url=self.model_url,
                azure=self.azure_endpoint,
                azure_api_version=self.azure_api_version,
            )
            yield self._opened.enter_context(closing(model))

    def owners(self) -> Owners:
        return Owners(
            index=Deferred(PackageIndex.title, self._index),
            hub=Deferred("the Hugging Face hub", lambda: self._hugging_face),
            kaggle=Deferred("Kaggle", lambda: self._kaggle),
        )

    def _index(self) -> PackageIndex:
        given = IndexSettings(self.index_urls) if self.index_urls else IndexSettings.of_pip()
        return self._opened.enter_context(closing(PackageIndex(given, self.patience)))


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``services``."""
    names = [field.name for field in fields(Services)]

    @functools.wraps(command)
    def packed(*arguments: Any, **options: Any) -> Any:
        with closing(Services(**{name: options.pop(name) for name in names})) as services:
            return command(*arguments, services=services, **options)

    described: Callable[..., Any] = packed
    for option in reversed(_OPTIONS):
        described = option(described)
    return described


def kaggle_login() -> tuple[str, str] | None:
    """As Kaggle's own tools find it. Tokens, and the file in its usual place, its library finds."""
    username, key = os.environ.get("KAGGLE_USERNAME"), os.environ.get("KAGGLE_KEY")
    if username and key:
        return username, key
    folder = os.environ.get("KAGGLE_CONFIG_DIR")
    if not folder:
        return None
    file = Path(folder) / "kaggle.json"
    try:
        value = json.loads(file.read_bytes())
        return str(value["username"]), str(value["key"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{file} holds no username and key") from error


def gateway_token(url: str, file: Path | None) -> str:
    """The token for a gateway: of ``file``, of READIE_AUTH_TOKEN, or of the ``readie up`` at ``url``.

    Raises `CorpusError`: the file cannot be read.
    """
    try:
        if file is None and (token := os.environ.get("READIE_AUTH_TOKEN")):
            return token
        file = file or _token_file_of(url)
        # One token a line: `secret`, or `id:secret`.
        return file.read_text().split()[0].rpartition(":")[2] if file else ""
    except (OSError, IndexError, UnicodeDecodeError) as error:
        raise CorpusError(f"{file} holds no token") from error


def _token_file_of(url: str) -> Path | None:
    """What a running ``readie up`` has left in the default data folder, if it serves ``url``."""
    chosen = os.environ.get("READIE_DATA_DIR")
    folder = Path(chosen or platformdirs.user_data_dir("readie", appauthor=False))
    try:
        service = json.loads((folder / "service.json").read_bytes())
        return Path(service["token_file"]) if service["url"] == url.rstrip("/") else None
    except (OSError, ValueError, KeyError, TypeError):
        return None

"""Opens the services whose client libraries are an extra, when they are first needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from readie_pipeline.corpus.checking import Owner
from readie_pipeline.corpus.patience import Patience
from readie_pipeline.errors import CorpusError, ServiceError

if TYPE_CHECKING:
    from readie_pipeline.corpus.hosted_model import HostedModel
    from readie_pipeline.corpus.hugging_face import HuggingFace
    from readie_pipeline.corpus.kaggle import Kaggle

# Each function imports what it opens only when it is called: the client libraries are large, most
# runs need none, and an install without the extra has none.


class MissingExtraError(CorpusError):
    """A client library is not installed; the message says what installs it."""

    def __init__(self, service: str) -> None:
        super().__init__(f"{service} needs a client library: pip install 'readie[corpus]'")


def open_kaggle(
    login: tuple[str, str] | None, patience: Patience, address: str | None = None
) -> "Kaggle":
    """``login`` is a user's name and key. Raises `MissingExtraError`."""
    try:
        from readie_pipeline.corpus.kaggle import Kaggle, Login
    except ModuleNotFoundError as error:
        raise MissingExtraError("Kaggle") from error
    return Kaggle(Login(*login) if login else None, patience, address)


def open_hugging_face(patience: Patience, address: str | None = None) -> "HuggingFace":
    """Raises `MissingExtraError`."""
    try:
        from readie_pipeline.corpus.hugging_face import HuggingFace
    except ModuleNotFoundError as error:
        raise MissingExtraError("the Hugging Face hub") from error
    return HuggingFace(patience, address)


def open_model(
    model: str,
    domains: Sequence[str],
    limit: int,
    patience: Patience,
    *,
    base_url: str | None = None,
    azure: str | None = None,
    azure_api_version: str | None = None,
) -> "HostedModel":
    """Raises `MissingExtraError`, and `ServiceError`: there is no key."""
    try:
        from readie_pipeline.corpus.hosted_model import Endpoint, HostedModel
    except ModuleNotFoundError as error:
        raise MissingExtraError("a hosted model") from error
    endpoint = Endpoint(model, base_url, azure, azure_api_version)
    return HostedModel(endpoint, domains, limit, patience)


class Deferred:
    """An owner of resources that is opened when it is first asked.

    One that cannot be opened says so to every question, so that a corpus without its kind of
    resources needs neither its library nor its credentials.
    """

    def __init__(self, title: str, open_: Callable[[], Owner]) -> None:
        self.title = title
        self._open = open_

    @property
    def identity(self) -> str:
        return self._owner.identity

    def exists(self, kind: str, name: str) -> bool:
        return self._owner.exists(kind, name)

    @cached_property
    def _owner(self) -> Owner:
        try:
            return self._open()
        except CorpusError as error:
            return _Silent(self.title, str(error))


@dataclass(frozen=True, slots=True)
class _Silent:
    title: str
    why: str
    identity: str = ""

    def exists(self, kind: str, name: str) -> bool:
        raise ServiceError(self.why)

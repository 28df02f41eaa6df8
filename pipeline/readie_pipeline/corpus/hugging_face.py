"""The Hugging Face hub: the code of its Spaces, and whether it has a model or dataset.

Imported only when the hub is asked: ``huggingface_hub`` comes with the extra ``corpus``.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar

import httpx2
from huggingface_hub import (
    HfApi,
    close_session,
    get_session,
    get_token,
    hf_hub_url,
    hf_raise_for_status,
    set_client_factory,
)
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)

from readie_pipeline.corpus.dataset import Workload
from readie_pipeline.corpus.folder import module_names
from readie_pipeline.corpus.notebooks import NotebookError, python_cells, written_modules
from readie_pipeline.corpus.patience import BUSY, Patience, refusal
from readie_pipeline.corpus.reading import read_code, without_local
from readie_pipeline.corpus.sources import Found
from readie_pipeline.errors import ServiceError

T = TypeVar("T")

_TITLE = "the Hugging Face hub"
_MOST_FILES = 20  # of one Space; most are one `app.py`
_MOST_BYTES = 1 << 20  # of one file


_NOT_THERE = (
    RepositoryNotFoundError,
    GatedRepoError,
    DisabledRepoError,
    RemoteEntryNotFoundError,
    HFValidationError,
)


class NotThereError(ServiceError):
    """The hub does not have it, or does not show it to this account."""


class HuggingFace:
    """The hub, with the token that `huggingface_hub` finds: ``HF_TOKEN``, or that of a login."""

    title = _TITLE

    def __init__(self, patience: Patience, address: str | None = None) -> None:
        # The library has one client for the whole process, and waits for ever with its own.
        set_client_factory(lambda: _PatientClient(patience))
        self._patience = patience
        self._api = HfApi(endpoint=address)
        self.identity: str = self._api.endpoint

    def close(self) -> None:
        """Let its connections go."""
        close_session()

    def spaces(self, search: str, limit: int) -> "Spaces":
        return Spaces(self, search, limit)

    def exists(self, kind: str, name: str) -> bool:
        """Whether there is such a repository: of a dataset, or of a model. Raises `ServiceError`."""
        repo_type = "dataset" if kind == "datasets" else "model"
        try:
            return self.ask(lambda: self._api.repo_exists(name, repo_type=repo_type))
        except NotThereError:
            return False

    def list_spaces(self, search: str, limit: int) -> Sequence[str]:
        """The Spaces with the most likes. Raises `ServiceError`."""
        listed = self._api.list_spaces
        return self.ask(
            lambda: [one.id for one in listed(search=search, sort="likes", limit=limit)]
        )

    def files_of(self, space: str) -> Sequence[str]:
        """Raises `ServiceError`."""
        return self.ask(
            lambda: [file.rfilename for file in self._api.space_info(space).siblings or ()]
        )

    def read(self, space: str, file: str) -> bytes:
        """At most one byte more than a file may have. Raises `ServiceError`."""
        url = hf_hub_url(space, file, repo_type="space", endpoint=self._api.endpoint)
        return self.ask(lambda: _download(url))

    def ask(self, question: Callable[[], T]) -> T:
        """Ask again where that may help; foreign errors become `ServiceError` or `NotThereError`."""

        def asked() -> T:
            try:
                return question()
            except _NOT_THERE as error:
                raise NotThereError("is not there any more, or is private") from error
            except HfHubHTTPError as error:
                raise refusal(_TITLE, error.response.status_code) from error
            except httpx2.TransportError as error:
                raise _broken(error) from error
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ServiceError(f"{_TITLE} sends an answer that cannot be used") from error

        return self._patience.ask(asked)


class Spaces:
    """The Spaces that a search finds, those with the most likes first; each is one workload."""

    def __init__(self, hub: HuggingFace, search: str, limit: int) -> None:
        self._hub = hub
        self._search = search
        self._limit = limit
        self.key = f"spaces {search!r}"
        self.title = f"Hugging Face Spaces, {search}"

    def references(self) -> Sequence[str]:
        return self._hub.list_spaces(self._search, self._limit)

    def fetch(self, reference: str) -> Sequence[Found]:
        try:
            files = self._hub.files_of(reference)
        except NotThereError as error:
            return [Found(reference, None, [str(error)])]
        wanted = sorted(name for name in files if name.endswith((".py", ".ipynb")))
        if not wanted:
            return [Found(reference, None, ["has no Python"])]
        codes: list[str] = []
        problems: list[str] = []
        own = module_names(map(PurePosixPath, files))
        for name in wanted[:_MOST_FILES]:
            try:
                data = self._read(reference, name)
                if name.endswith(".ipynb"):
                    codes += python_cells(data)
                    own |= written_modules(data)
                else:
                    codes.append(data.decode())
            except (NotThereError, NotebookError, UnicodeDecodeError) as error:
                problems.append(f"{name}: {error}")
        reading = read_code(codes)
        workload = Workload(
            id=hashlib.sha256(f"space:{reference}".encode()).hexdigest()[:12],
            source=f"huggingface:spaces/{reference}",
            resources=without_local(reading.resources, own),
            domain=self._search,
            code=tuple(codes),
        )
        return [Found(reference, workload, [*problems, *reading.problems])]

    def _read(self, space: str, name: str) -> bytes:
        data = self._hub.read(space, name)
        if len(data) > _MOST_BYTES:
            raise NotebookError(f"is larger than {_MOST_BYTES >> 20} MiB")
        return data


class _PatientClient(httpx2.Client):
    """Raises our error where the library would wait and ask again for as long as it is told to."""

    def __init__(self, patience: Patience) -> None:
        super().__init__(follow_redirects=True)
        self._deadline = httpx2.Timeout(patience.deadline_s)

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        request.extensions["timeout"] = self._deadline.as_dict()  # most requests ask for none
        try:
            response = super().send(request, **options)
        except httpx2.TransportError as error:
            raise _broken(error) from error
        if response.status_code in BUSY:
            response.close()
            refused = refusal(_TITLE, response.status_code)
            refused.retry_after_s = _seconds(response.headers.get("Retry-After"))
            raise refused
        return response


def _broken(error: httpx2.TransportError) -> ServiceError:
    if isinstance(error, httpx2.TimeoutException):
        return ServiceError(f"{_TITLE} does not answer in time")
    return ServiceError(f"{_TITLE} cannot be reached, or breaks off")


def _seconds(header: str | None) -> float:
    """None is asked for: as little as we like. Dates are not sent by the hub."""
    return float(header) if header and header.isdecimal() else 0.0


def _download(url: str) -> bytes:
    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    pieces: list[bytes] = []
    with get_session().stream("GET", url, headers=headers) as response:
        if response.is_error:
            response.read()
        hf_raise_for_status(response)
        for piece in response.iter_bytes():
            pieces.append(piece)
            if sum(map(len, pieces)) > _MOST_BYTES:
                break
    return b"".join(pieces)[: _MOST_BYTES + 1]

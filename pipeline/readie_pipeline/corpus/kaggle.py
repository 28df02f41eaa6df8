"""Kaggle: its public notebooks as example code, and whether it has a dataset.

Imported only when Kaggle is asked: ``kagglesdk`` comes with the extra ``corpus``.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import requests
from kagglesdk.datasets.services.dataset_api_service import DatasetApiClient
from kagglesdk.datasets.types.dataset_api_service import ApiGetDatasetRequest
from kagglesdk.kaggle_env import KaggleEnv
from kagglesdk.kaggle_http_client import KaggleHttpClient
from kagglesdk.kernels.services.kernels_api_service import KernelsApiClient
from kagglesdk.kernels.types.kernels_api_service import (
    ApiGetKernelRequest,
    ApiGetKernelResponse,
    ApiListKernelsRequest,
)
from kagglesdk.kernels.types.kernels_enums import KernelsListSortType

from readie_pipeline.corpus.dataset import Workload
from readie_pipeline.corpus.finding import KAGGLE
from readie_pipeline.corpus.notebooks import NotebookError, python_cells, written_modules
from readie_pipeline.corpus.patience import Patience, failure
from readie_pipeline.corpus.reading import read_code, without_local
from readie_pipeline.corpus.sources import Found
from readie_pipeline.errors import ServiceError

T = TypeVar("T")

_PAGE = 50  # notebooks a page of a listing; Kaggle gives at most 100
_GONE = (403, 404)  # Kaggle says 403 of what is private and of what was never there


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """A user's name and key. Without one `kagglesdk` looks for a token and for ``kaggle.json``."""

    username: str
    key: str


class Kaggle:
    """An account, used by all sources and checks of a run; safe for several threads."""

    title = "Kaggle"

    def __init__(self, login: Login | None, patience: Patience, address: str | None = None) -> None:
        self._client = _PatientClient(login, patience, address)
        self._kernels = KernelsApiClient(self._client)
        self._datasets = DatasetApiClient(self._client)
        self.identity = address or "kaggle"

    def close(self) -> None:
        """Let its connections go."""
        self._client.__exit__(None, None, None)

    def notebooks(self, search: str, limit: int) -> "KaggleNotebooks":
        return KaggleNotebooks(self, search, limit)

    def exists(self, kind: str, name: str) -> bool:
        """Whether there is a public dataset ``kaggle:owner/name``. Raises `ServiceError`."""
        request = ApiGetDatasetRequest()
        request.owner_slug, _, request.dataset_slug = name.removeprefix(KAGGLE).partition("/")
        return self.ask(lambda: self._datasets.get_dataset(request)) is not None

    def list_page(self, search: str, page: int) -> Sequence[str]:
        """References of the notebooks with the most votes. Raises `ServiceError`."""
        request = ApiListKernelsRequest()
        request.search, request.language = search, "python"
        request.sort_by = KernelsListSortType.VOTE_COUNT
        request.page, request.page_size = page, _PAGE
        listed = self.ask(lambda: self._kernels.list_kernels(request))
        if listed is None:
            raise ServiceError(f"{self.title} does not let this account search")
        return [kernel.ref for kernel in listed.kernels]

    def notebook(self, reference: str) -> ApiGetKernelResponse | None:
        """``None`` when it is not there any more. Raises `ServiceError`."""
        request = ApiGetKernelRequest()
        request.user_name, _, request.kernel_slug = reference.partition("/")
        return self.ask(lambda: self._kernels.get_kernel(request))

    def ask(self, question: Callable[[], T]) -> T | None:
        """Foreign errors become ours; what is not there, or not shown, is ``None``."""
        try:
            return question()
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code in _GONE:
                return None
            raise failure(self.title, error) from error
        except requests.RequestException as error:
            raise failure(self.title, error) from error
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ServiceError(f"{self.title} sends an answer that cannot be used") from error


class KaggleNotebooks:
    """The notebooks and scripts in Python that a search finds, those with the most votes first."""

    def __init__(self, kaggle: Kaggle, search: str, limit: int) -> None:
        self._kaggle = kaggle
        self._search = search
        self._limit = limit
        self.key = f"kaggle {search!r}"
        self.title = f"Kaggle, {search}"

    def references(self) -> Iterator[str]:
        left = self._limit
        page = 1
        while left > 0 and (listed := self._kaggle.list_page(self._search, page)):
            yield from listed[:left]
            left -= len(listed)
            page += 1

    def fetch(self, reference: str) -> Sequence[Found]:
        answer = self._kaggle.notebook(reference)
        if answer is None or answer.blob is None:
            return [Found(reference, None, ["is not there any more"])]
        blob = answer.blob
        if blob.language.lower() not in ("", "python"):
            return [Found(reference, None, [f"its language is {blob.language}"])]
        try:
            notebook = blob.kernel_type.lower() == "notebook"
            codes = python_cells(blob.source.encode()) if notebook else [blob.source]
            own = written_modules(blob.source.encode()) if notebook else frozenset()
        except NotebookError as error:
            return [Found(reference, None, [str(error)])]
        return [self._read(reference, codes, own, answer.metadata)]

    def _read(
        self, reference: str, codes: Sequence[str], own: frozenset[str], metadata: Any
    ) -> Found:
        reading = read_code(codes)
        attached = [KAGGLE + name for name in (metadata.dataset_data_sources if metadata else ())]
        # Utility scripts are other people's own modules, whatever an index has under their names.
        scripts = metadata.kernel_data_sources if metadata else ()
        utilities = {name.rpartition("/")[2].replace("-", "_") for name in scripts}
        resources = without_local(reading.resources, own | utilities)
        datasets = tuple(dict.fromkeys((*resources.datasets, *attached)))
        workload = Workload(
            id=hashlib.sha256(f"kaggle:{reference}".encode()).hexdigest()[:12],
            source=f"kaggle:{reference}",
            resources=replace(resources, datasets=datasets),
            domain=self._search,
            code=tuple(codes),
        )
        return Found(reference, workload, reading.problems)


class _PatientClient(KaggleHttpClient):  # type: ignore[misc] # untyped
    """The SDK's own client sends without a time-out, asks once, and knows its addresses by heart."""

    def __init__(self, login: Login | None, patience: Patience, address: str | None) -> None:
        super().__init__(
            env=KaggleEnv.PROD,
            username=login.username if login else None,
            password=login.key if login else None,
        )
        if address is not None:
            self._endpoint = address.rstrip("/")
        self.__enter__()  # makes the session
        patience.mount(self._session)

"""Workloads from recorded calls: what a running service counted, or a saved file of the same lines."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import requests
from requests.auth import AuthBase

from readie_pipeline.corpus.dataset import Resources, Workload, can_be_imported
from readie_pipeline.corpus.patience import Patience, failure, refusal
from readie_pipeline.errors import CorpusError, ServiceError
from readie_wire.extracting import is_standard_library
from readie_wire.http import API_PREFIX

_TITLE = "the service"
_MOST_LINES = 1_000_000  # a year of the most distinct sets that a service keeps of a day


def fetch_recorded(
    url: str, token: str, days: int | None, patience: Patience
) -> Sequence[Workload]:
    """Ask a gateway for ``days`` (all that it keeps). Raises `CorpusError`."""
    wanted = {} if days is None else {"days": str(days)}
    address = f"{url.rstrip('/')}{API_PREFIX}/imports"
    try:
        with patience.session() as session:
            session.auth = _Bearer(token)
            # A redirect could lead the token elsewhere, and a gateway sends none.
            with session.get(address, params=wanted, stream=True, allow_redirects=False) as answer:
                if answer.status_code != 200:
                    raise _refused(answer)
                return read_recorded(map(bytes.decode, answer.iter_lines()), url)
    except requests.RequestException as error:
        raise failure(_TITLE, error) from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{url}: {error}") from error


class _Bearer(AuthBase):
    """As a header alone, a line of ``.netrc`` for the same host would take its place."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def load_recorded(path: Path) -> Sequence[Workload]:
    """Read a file of the lines that the gateway sends. Raises `CorpusError`."""
    try:
        with path.open(encoding="utf-8") as lines:
            return read_recorded(lines, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: {error}") from error


def read_recorded(lines: Iterable[str], place: str) -> Sequence[Workload]:
    """``{"imports", "count", "day"}`` a line: one workload for each set, with the counts of all days.

    The same sets have the same ids in every run. Raises `CorpusError`, which names the line.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(lines, start=1):
        if number > _MOST_LINES:
            raise CorpusError(f"{place} has more than {_MOST_LINES} lines")
        if line.strip():
            names, count = _read(line, f"{place}, line {number}")
            counts[names] += count
    return [_workload(names, count) for names, count in sorted(counts.items())]


def _read(line: str, place: str) -> tuple[tuple[str, ...], int]:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{place}: not JSON, or cut short: {error}") from error
    match value:
        case {"imports": list(names), "count": int(count)} if count > 0 and all(
            isinstance(name, str) for name in names
        ):
            # Callers may say what they like that they import.
            kept = {
                name for name in names if can_be_imported(name) and not is_standard_library(name)
            }
            return tuple(sorted(kept)), count
    raise CorpusError(f'{place}: must be {{"imports": [names of modules], "count": at least 1}}')


def _workload(names: tuple[str, ...], count: int) -> Workload:
    digest = hashlib.sha256(f"recorded:{','.join(names)}".encode()).hexdigest()
    return Workload(digest[:12], "recorded", Resources(names), count=count)


def _refused(answer: requests.Response) -> ServiceError:
    """What the gateway says is wrong is for people, and holds no token."""
    if answer.status_code in (401, 403):
        return ServiceError(
            f"{_TITLE} does not take the token ({answer.status_code}): set READIE_AUTH_TOKEN, or "
            "give --token-file"
        )
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return refusal(_TITLE, answer.status_code)
    return ServiceError(f"{_TITLE} answers {answer.status_code}: {detail}")

"""The package index that the machine's pip is set up with: whether it has a distribution."""

import ast
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests
from packaging.utils import canonicalize_name

from readie_pipeline.corpus.patience import Patience, failure, refusal
from readie_pipeline.errors import ServiceError

_PIP_DEADLINE_S = 60.0  # starting pip on a busy machine
# Only pip knows which index it takes when it is told of none; its help says so.
_DEFAULT = re.compile(r"Package\s+Index\s+\(default\s+(\S+?)\)")
_SETTING = re.compile(r"(global|install|:env:)\.([a-z-]+)=(.*)")
_PRECEDENCE = ("global", "install", ":env:")


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """``urls`` are simple indexes (of HTTP or of a folder), which may hold credentials."""

    urls: Sequence[str]
    certificates: str | None = None

    @classmethod
    def of_pip(cls) -> "IndexSettings":
        """As ``pip install`` of this interpreter would take them. Raises `ServiceError`: no pip."""
        settings = filter(None, map(_SETTING.fullmatch, _pip("config", "list").splitlines()))
        found: dict[str, str] = {}
        for setting in sorted(settings, key=lambda setting: _PRECEDENCE.index(setting[1])):
            found[setting[2]] = str(ast.literal_eval(setting[3]))
        first = found.get("index-url") or _default_index()
        urls = [] if found.get("no-index") in ("true", "1", "yes", "on") else [first]
        return cls([*urls, *found.get("extra-index-url", "").split()], found.get("cert"))


class PackageIndex:
    """Asks each URL in turn, by the simple repository API, without reading what it lists."""

    title = "the package index"

    def __init__(self, settings: IndexSettings, patience: Patience) -> None:
        self._urls = [url.rstrip("/") for url in settings.urls]
        self._session = patience.session()
        if settings.certificates:
            self._session.verify = settings.certificates
        self.identity = " ".join(map(_without_credentials, self._urls))

    def close(self) -> None:
        """Let its connections go."""
        self._session.close()

    def exists(self, kind: str, name: str) -> bool:
        """``kind`` is always a package. Raises `ServiceError`."""
        if not self._urls:
            raise ServiceError("pip is set up with no package index")
        trouble = None
        for url in self._urls:
            try:
                if self._has(url, f"{canonicalize_name(name)}/"):
                    return True
            except ServiceError as error:
                trouble = error
        if trouble:
            raise trouble
        return False

    def _has(self, url: str, page: str) -> bool:
        if url.startswith("file:"):
            return Path(urllib.request.url2pathname(urlsplit(url).path), page).is_dir()
        try:
            answer = self._session.head(f"{url}/{page}", allow_redirects=True)
            if answer.status_code in (405, 501):
                answer = self._session.get(f"{url}/{page}", stream=True)
                answer.close()
        except requests.RequestException as error:
            raise failure(self.title, error) from error
        if answer.status_code in (404, 410):
            return False
        if not answer.ok:
            raise refusal(self.title, answer.status_code)
        return True


def _default_index() -> str:
    told = _DEFAULT.search(_pip("install", "--help"))
    if told is None:
        raise ServiceError("pip does not say which package index it takes: give --package-index")
    return told[1]


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PIP_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServiceError(
            "there is no pip here that knows a package index: give --package-index"
        ) from error
    return done.stdout


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

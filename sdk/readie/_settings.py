"""Where the service is and how to be let in.

The first that is there counts: an argument, ``readie.configure``, ``READIE_URL`` and
``READIE_AUTH_TOKEN``, and last the ``service.json`` that ``readie up`` leaves in the default data
folder. This is the one module of the SDK that reads the environment.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from readie._errors import ConfigurationError

SERVICE_FILE = "service.json"
TOKEN_FILE = "token"  # noqa: S105 - a file's name


@dataclass(frozen=True, slots=True)
class Address:
    """A service: ``url`` without a slash at its end, ``auth_token`` may be empty."""

    url: str
    auth_token: str = ""

    def __repr__(self) -> str:  # a token must not reach a log by accident
        return f"Address({self.url!r})"


def resolve(url: str | None = None, auth_token: str | None = None) -> Address:
    """Complete what the caller gave. Raises `ConfigurationError` when no service is known."""
    url = url or os.environ.get("READIE_URL")
    auth_token = auth_token or os.environ.get("READIE_AUTH_TOKEN")
    if url is None:
        found = _discover(data_folder() / SERVICE_FILE)
        if found is None:
            raise ConfigurationError(
                "no Readie service is known: start one with `readie up`, or set READIE_URL and "
                "READIE_AUTH_TOKEN, or call readie.configure(url=…, auth_token=…)"
            )
        return Address(_checked(found.url), _checked_token(auth_token or found.auth_token))
    return Address(_checked(url), _checked_token(auth_token))


def data_folder() -> Path:
    """The default data folder of ``readie up``: ``READIE_DATA_DIR``, else the platform's."""
    if folder := os.environ.get("READIE_DATA_DIR"):
        return Path(folder)
    import platformdirs  # only who has no READIE_URL needs it

    return Path(platformdirs.user_data_dir("readie", appauthor=False))


def read_token(file: Path) -> str:
    """The first token of a token file, which has one a line: ``secret`` or ``id:secret``.

    ``#`` opens a comment. Raises `IndexError` for a file without a token.
    """
    lines = (line.strip() for line in file.read_text().splitlines())
    tokens = [line for line in lines if line and not line.startswith("#")]
    return tokens[0].rpartition(":")[2]


def in_sandbox() -> bool:
    """Whether this process runs a call: there a remote function is the plain function."""
    return os.environ.get("READIE_IN_SANDBOX") == "1"


def environment() -> dict[str, str]:
    """A copy of the environment, for the processes that ``readie up`` starts."""
    return dict(os.environ)


def _discover(file: Path) -> Address | None:
    try:
        described = json.loads(file.read_text())
        return Address(described["url"], read_token(Path(described["token_file"])))
    except FileNotFoundError:
        return None
    except (IndexError, OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{file} cannot be used ({error}): start `readie up` again, or set READIE_URL"
        ) from error


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (AttributeError, TypeError, ValueError):  # no text, or a port that is none
        good = False
    if not good:
        raise ConfigurationError(
            f"{url!r} is not an address: it must look like http://127.0.0.1:8777"
        )
    return url.rstrip("/")


def _checked_token(token: str | None) -> str:
    """Without the line end that a file has. Other characters of that kind would break the header."""
    token = str(token or "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ConfigurationError(
            "the token has characters that no token has; `readie up` tells which file has the token"
        )
    return token

"""The folder of ``readie up``: one owner at a time, the token, and the note by which clients find it.

lock          held while it runs; holds the owner's process id
token         the bearer token, made once
seal-key      what secrets of calls are sealed with, made once
service.json  in the default data folder, whatever folder is used: url and token file
objects/ valkey/ workers/ logs/
"""

import fcntl
import json
import os
import secrets
from pathlib import Path

import click

from readie import _settings

SEAL_KEY_BYTES = 32  # as `readie_infra.sealing` reads it


class DataFolder:
    """Makes the folder, private to its user, and owns it until `release`."""

    def __init__(self, path: Path | None) -> None:
        self.path = (path or _settings.data_folder()).absolute()
        self._note = _settings.data_folder() / _settings.SERVICE_FILE
        self._lock: int | None = None
        self._before = ""  # the note of another service, which runs in another folder

    @property
    def token_file(self) -> Path:
        return self.path / _settings.TOKEN_FILE

    def acquire(self) -> None:
        """Raises `click.ClickException` when another ``readie up`` has it, or it cannot be made."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise click.ClickException(
                f"the data folder cannot be used ({error}); choose another one with --data-dir"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._lock, 20).decode("ascii", "replace").strip()
            raise click.ClickException(
                f"readie up is running already in {self.path} (process {owner}); stop it, or "
                "choose another folder with --data-dir"
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def folder(self, *parts: str) -> Path:
        path = self.path.joinpath(*parts)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def ensure_token(self) -> str:
        """The token, made the first time."""
        try:
            return _settings.read_token(self.token_file)
        except (FileNotFoundError, IndexError):
            token = secrets.token_urlsafe(32)
            _write_private(self.token_file, token + "\n")
            return token

    def ensure_seal_key(self) -> Path:
        """The file of the key that secrets are sealed with, made the first time."""
        file = self.path / "seal-key"
        if not file.exists():
            _write_private(file, secrets.token_hex(SEAL_KEY_BYTES) + "\n")
        return file

    def announce(self, url: str) -> None:
        """Let clients of this user find the service; without that, they are told where it is."""
        note = {"url": url, "token_file": str(self.token_file), "pid": os.getpid()}
        try:
            self._note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._before = self._note.read_text() if self._note.exists() else ""
            _write_private(self._note, json.dumps(note) + "\n")
        except OSError as error:
            click.echo(
                f"clients must set READIE_URL: {self._note} was not written ({error})", err=True
            )

    def withdraw(self) -> None:
        """Take the note back, unless another service has put its own there since.

        The one that was there before is there again, if its service still runs.
        """
        try:
            if json.loads(self._note.read_text()).get("pid") != os.getpid():
                return
            if _is_alive(self._before):
                _write_private(self._note, self._before)
            else:
                self._note.unlink()
        except (OSError, ValueError):
            return


def _is_alive(note: str) -> bool:
    """Whether the process that left a note is there."""
    try:
        os.kill(int(json.loads(note)["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)

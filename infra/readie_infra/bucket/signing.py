"""Signatures of packing lists: ed25519, with keys that publishers keep and workers pin.

Whoever may write to a bucket could otherwise run code on every worker.
"""

import base64
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from readie_infra.bucket.errors import UntrustedError
from readie_infra.errors import SettingsError
from readie_wire.briefly import brief
from readie_wire.publication import Sealed

SIGNERS_SHOWN = 3  # in a message

_SCHEME = "ed25519:"


class SigningKey:
    """A publisher's private key. ``public`` is what workers are given: ``ed25519:`` and base64."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = _SCHEME + base64.b64encode(key.public_key().public_bytes_raw()).decode()

    @classmethod
    def create(cls, path: Path) -> "SigningKey":
        """Make a key and write it, readable by its owner alone. Raises `SettingsError`."""
        key = Ed25519PrivateKey.generate()
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
        except OSError as error:
            raise SettingsError(f"the key {path} cannot be written: {error.strerror}") from error
        return cls(key)

    @classmethod
    def read(cls, path: Path) -> "SigningKey":
        """Raises `SettingsError`."""
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise SettingsError(f"the key {path} cannot be read: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise SettingsError(f"the key {path} is not an ed25519 key; make one with keygen")
        return cls(key)

    def seal(self, text: str) -> Sealed:
        signature = self._key.sign(Sealed(text).signed)
        return Sealed(text, {self.public: base64.b64encode(signature).decode()})


@dataclass(frozen=True, slots=True)
class Trust:
    """The public keys of which one must have signed. ``unsigned`` asks for no signature at all."""

    keys: frozenset[str] = frozenset()
    unsigned: bool = False

    @classmethod
    def of(cls, keys: Iterable[str], *, unsigned: bool = False) -> "Trust":
        """Raises `SettingsError` for what is no public key, and when nothing could be trusted."""
        trust = cls(frozenset(key.strip() for key in keys if key.strip()), unsigned)
        for key in trust.keys:
            _public_key(key)
        if not trust.keys and not unsigned:
            raise SettingsError(
                "a bucket needs the public keys of those who may publish to it; give them, or "
                "say that unsigned generations are accepted"
            )
        return trust

    def open(self, sealed: Sealed) -> str:
        """The text of a packing list that is trusted. Raises `UntrustedError`."""
        if self.unsigned:
            return sealed.text
        for key in self.keys & sealed.signatures.keys():
            try:
                signature = base64.b64decode(sealed.signatures[key], validate=True)
                _public_key(key).verify(signature, sealed.signed)
            except (InvalidSignature, ValueError) as error:  # ValueError: it is no base64
                raise UntrustedError(f"its signature by {key} is wrong") from error
            return sealed.text
        by = ", ".join(brief(key) for key in sorted(sealed.signatures)[:SIGNERS_SHOWN]) or "nobody"
        raise UntrustedError(f"it is signed by {by}, and by none of the keys that are pinned here")


def _public_key(text: str) -> Ed25519PublicKey:
    try:
        if not text.startswith(_SCHEME):
            raise ValueError(f"it does not begin with {_SCHEME}")
        raw = base64.b64decode(text.removeprefix(_SCHEME), validate=True)
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError as error:
        raise SettingsError(f"{text[:80]!r} is not a public key: {error}") from error

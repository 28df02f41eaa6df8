"""Secrets of calls, sealed by the gateway and opened by the worker: Redis and its dumps hold neither.

AES-256-GCM under one key that both read from a file. A seal is bound to the token of its call: moved to
another token's call it does not open.
"""

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from readie_infra.errors import SealError, SettingsError

KEY_BYTES = 32
NONCE_BYTES = 12  # random; a key outlives the 2**32 seals that are safe with it by far


class Seal:
    """Seals and opens under one key of `KEY_BYTES` bytes."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def close(self, values: Mapping[str, str], token: str) -> str:
        """The sealed text of names and values, for a call of ``token``."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, json.dumps(dict(values)).encode(), token.encode())
        return base64.b64encode(nonce + sealed).decode("ascii")

    def open(self, sealed: str, token: str) -> dict[str, str]:
        """What was sealed for ``token``. Raises `SealError`."""
        try:
            data = base64.b64decode(sealed, validate=True)
            plain = self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], token.encode())
        except (ValueError, InvalidTag) as error:
            raise SealError(
                "the secrets cannot be opened: gateway and worker have different keys, or they were "
                "tampered with"
            ) from error
        found: dict[str, str] = json.loads(plain)
        return found


def read_seal(path: Path) -> Seal:
    """The seal of a key file: 64 hex digits, readable by its owner alone. Raises `SettingsError`."""
    try:
        mode = path.stat().st_mode
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"READIE_SEAL_KEY_FILE: {path} holds no key ({error}); "
            f"make one with `openssl rand -hex {KEY_BYTES}`"
        ) from error
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"READIE_SEAL_KEY_FILE: {path} holds {len(key)} bytes, a key has {KEY_BYTES}"
        )
    if mode & 0o077:
        raise SettingsError(f"READIE_SEAL_KEY_FILE: others can read {path}; chmod 600 it")
    return Seal(key)

"""Bearer tokens: who calls. Tokens are on by default; only health and the schema go without."""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from readie_gateway.errors import UnauthenticatedError
from readie_gateway.problems import problem_response
from readie_wire.keys import InvalidIdError, check_id

DEFAULT_TOKEN_ID = "default"  # noqa: S105 - the id of a token, not its secret
MIN_SECRET_LENGTH = 16  # characters; a shorter one can be guessed over the network
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})


class InvalidTokenFileError(ValueError):
    """The token file holds no usable token; the message names the line."""


class Tokens:
    """The secrets that open the gateway, kept as digests, and the id that each stands for."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """``secrets`` maps secret → token id."""
        self._ids = {_digest(secret): token_id for secret, token_id in secrets.items()}

    def identify(self, secret: str) -> str | None:
        """The token's id, or ``None``. Its time does not depend on how much of a secret is right."""
        digest = _digest(secret)
        token_id = None
        for known, known_id in self._ids.items():
            if hmac.compare_digest(known, digest):
                token_id = known_id
        return token_id


def read_tokens(path: Path) -> Tokens:
    """Tokens of a file with one ``secret`` or ``id:secret`` a line; ``#`` opens a comment.

    Raises `InvalidTokenFileError`, and `OSError` when the file cannot be read.
    """
    secrets: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        token_id, colon, secret = text.rpartition(":")
        if len(secret) < MIN_SECRET_LENGTH:
            raise InvalidTokenFileError(
                f"{path}:{number}: a secret has at least {MIN_SECRET_LENGTH} characters"
            )
        try:
            secrets[secret] = check_id(token_id, "the token id") if colon else DEFAULT_TOKEN_ID
        except InvalidIdError as error:
            raise InvalidTokenFileError(f"{path}:{number}: {error}") from error
    if not secrets:
        raise InvalidTokenFileError(f"{path} holds no token: write one secret a line")
    return Tokens(secrets)


class BearerAuth:
    """ASGI middleware: puts the token's id into ``scope["token"]``, or answers 401."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                scope["token"] = self._authenticate(scope)
            except UnauthenticatedError as error:
                await problem_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _authenticate(self, scope: Scope) -> str:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        if given is None:
            raise UnauthenticatedError(
                "there is no token: send the header 'Authorization: Bearer <token>'"
            )
        scheme, _, secret = given.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise UnauthenticatedError("the Authorization header must be 'Bearer <token>'")
        token_id = self._tokens.identify(secret.strip())
        if token_id is None:
            raise UnauthenticatedError(
                "the token is not one of this gateway's; `readie up` tells which file has it"
            )
        return token_id


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()

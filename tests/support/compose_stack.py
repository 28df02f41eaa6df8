"""The stack of docker-compose.yml on a test's own engine, with settings and images of its own."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from readie_infra.bucket import SigningKey
from support.docker_engine import DockerEngine
from support.image_parts import CA_BUNDLE, lay_out_parts
from support.ports import free_port
from support.repository import ROOT
from support.stack import Stack

BUILD_DEADLINE_S = 600.0
STEP_DEADLINE_S = 300.0


@dataclass(frozen=True)
class ComposeStack:
    """``settings`` is its environment file, ``secrets`` what of that nobody may find in an image.

    ``readie`` is the stack as a client sees it.
    """

    engine: DockerEngine
    settings: Path
    secrets: tuple[str, ...]
    readie: Stack

    def compose(
        self,
        *arguments: str,
        also: str | None = None,
        check: bool = True,
        deadline_s: float = STEP_DEADLINE_S,
        environment: dict[str, str] | None = None,
    ) -> str:
        """What a compose command prints; ``also`` is one more compose file of the repository."""
        names = ["docker-compose.yml", "tests/compose/offline.yml", *([also] if also else [])]
        done = self.engine.run(
            *("compose", "--env-file", self.settings, "--progress", "plain"),
            *(word for name in names for word in ("--file", ROOT / name)),
            *arguments,
            check=check,
            deadline_s=deadline_s,
            environment=environment,
        )
        return done.stdout

    def address(self, service: str) -> str:
        """The IPv4 address of a service's container."""
        container = self.compose("ps", "--quiet", service).strip()
        described = json.loads("".join(self.engine.lines("inspect", container)))
        (network,) = described[0]["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])


def prepare(engine: DockerEngine, folder: Path) -> ComposeStack:
    """Write the settings and build the images, as `docker compose build` does; nothing runs yet."""
    lay_out_parts(folder)
    key = SigningKey.create(folder / "publisher.pem")
    token, port = secrets.token_urlsafe(16), free_port()
    (folder / "token").write_text(f"{token}\n")
    secret_key = secrets.token_hex(16)
    settings = {
        "COMPOSE_PROJECT_NAME": "readie",
        "AWS_ACCESS_KEY_ID": secrets.token_hex(8),
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "READIE_BUCKET_KEYS": key.public,
        "READIE_PUBLISHER_KEY": folder / "publisher.pem",
        "READIE_TOKEN": folder / "token",
        "READIE_PORT": port,
        "S3_PORT": free_port(),
        "PACKAGES": "six",
        "VALKEY_IMAGE": "readie-test-valkey",
        "S3_IMAGE": "readie-test-s3",
        "PARTS": folder,
        "CA_BUNDLE": CA_BUNDLE,
    }
    file = folder / "settings.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    readie = Stack(f"http://127.0.0.1:{port}", token, folder, {})
    stack = ComposeStack(engine, file, (token, secret_key), readie)
    stack.compose("build", deadline_s=BUILD_DEADLINE_S)
    return stack

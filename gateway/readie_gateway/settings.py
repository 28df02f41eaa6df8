"""What the gateway is told by its environment; each field is ``READIE_…`` unless it says otherwise."""

from ipaddress import ip_address
from pathlib import Path

from pydantic import Field

from readie_gateway.services import QUEUE_LIMIT, WINDOW_MARGIN_S, Limits
from readie_infra.settings import ServerSettings
from readie_infra.store import DEFAULT_SESSION_IDLE_S
from readie_wire.http import DEFAULT_PORT, PAYLOAD_LIMIT_BYTES, WAIT_WINDOW_S


class GatewaySettings(ServerSettings):
    """Settings of ``python -m readie_gateway``."""

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535, description="0 takes a free one.")
    token_file: Path = Field(
        description="The bearer tokens: one a line, `secret` or `id:secret`.",
    )
    catalogue_dir: Path | None = Field(
        default=None,
        validation_alias="CATALOGUE_DIR",
        description="CATALOGUE_DIR: a folder of catalogues, *.json.",
    )
    generations_dir: Path | None = Field(
        default=None, description="A generation, or a folder with one for each flavor."
    )
    payload_limit: int = Field(
        default=PAYLOAD_LIMIT_BYTES, gt=0, description="Bytes of one call's function and arguments."
    )
    queue_limit: int = Field(
        default=QUEUE_LIMIT, gt=0, description="Queued calls of one token and flavor."
    )
    wait_window: float = Field(
        default=WAIT_WINDOW_S - WINDOW_MARGIN_S,
        gt=0,
        le=3600,
        description="Seconds an answer is held; below what proxies in front of it allow (often 60).",
    )

    record_imports_days: int = Field(
        default=14,
        ge=0,
        le=366,
        description="Days for which the names that calls import are counted; 0 keeps none.",
    )

    session_idle: float = Field(
        default=DEFAULT_SESSION_IDLE_S,
        gt=0,
        validation_alias="SANDBOX_IDLE_TTL",
        description="SANDBOX_IDLE_TTL: seconds a session may wait for its first call; as on the workers.",
    )

    @property
    def exposed(self) -> bool:
        """Whether other machines can reach this gateway."""
        if self.host == "localhost":
            return False
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return True  # a name: whatever it stands for may change

    @property
    def limits(self) -> Limits:
        return Limits(
            payload=self.payload_limit,
            queue=self.queue_limit,
            wait_window_s=self.wait_window,
            exposed=self.exposed,
            session_idle_s=self.session_idle,
        )

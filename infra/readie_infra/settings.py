"""What every server is told by its environment. Only a ``__main__`` calls `load_settings`."""

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from readie_infra.errors import SettingsError
from readie_wire.keys import DEFAULT_PREFIX

ENV_PREFIX = "READIE_"


class ServerSettings(BaseSettings):
    """The settings that gateway and worker share; each adds its own in a subclass."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="ignore", frozen=True, populate_by_name=True
    )

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        description="Redis 7 or Valkey: redis://, rediss:// or unix:///path?db=0",
    )
    redis_prefix: str = Field(
        default=DEFAULT_PREFIX, description="Before every key, so that installations can share"
    )
    blob_url: str | None = Field(
        default=None,
        description="Where large payloads and results go: file:///folder or s3://bucket/prefix",
    )
    bucket: str | None = Field(
        default=None,
        description="Where published generations are: s3://bucket/prefix or file:///folder",
    )
    seal_key_file: Path | None = Field(
        default=None,
        description="The key that secrets are sealed with: 64 hex digits, the same for all, mode 600",
    )
    log_format: Literal["console", "json"] = Field(
        default="console", description="console for people, json for machines"
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"


_Settings = TypeVar("_Settings", bound=BaseSettings)


def load_settings(kind: type[_Settings], **given: Any) -> _Settings:
    """Read settings from the environment; ``given`` (not `None`) come first.

    Raises `SettingsError` that names each bad setting as the user wrote it, without its value: it
    may be a password.
    """
    try:
        return kind(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        problems = "; ".join(
            f"{_written(kind, item['loc'])}: {item['msg']}" for item in error.errors()
        )
        raise SettingsError(problems) from None


def _written(kind: type[BaseSettings], location: tuple[int | str, ...]) -> str:
    name = str(location[0]) if location else "settings"
    field = kind.model_fields.get(name)
    if field is None:
        return name  # already the name of a variable, by its alias
    if isinstance(field.validation_alias, str):
        return field.validation_alias
    return f"{kind.model_config.get('env_prefix', '')}{name}".upper()

"""What the environment says, and what comes out on stderr."""

import json
import logging
import subprocess
import sys

import pytest
from pydantic import Field

from readie_infra.errors import SettingsError
from readie_infra.settings import ServerSettings, load_settings


class Example(ServerSettings):
    slots: int = Field(default=1, ge=1)
    flavor: str = Field(default="cpu", validation_alias="WORKER_FLAVOR")
    memory_total: int = Field(default=1, validation_alias="WORKER_MEMORY")


def test_settings_come_from_prefixed_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READIE_SLOTS", "4")
    monkeypatch.setenv("READIE_REDIS_URL", "unix:///run/redis.sock")
    monkeypatch.setenv("WORKER_FLAVOR", "gpu")
    settings = load_settings(Example)
    assert (settings.slots, settings.redis_url, settings.flavor) == (
        4,
        "unix:///run/redis.sock",
        "gpu",
    )


def test_what_is_given_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READIE_SLOTS", "4")
    assert load_settings(Example, slots=2, redis_url=None).slots == 2


def test_every_bad_setting_is_named_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READIE_SLOTS", "0")
    monkeypatch.setenv("WORKER_MEMORY", "hunter2")
    with pytest.raises(SettingsError) as refusal:
        load_settings(Example)
    assert "READIE_SLOTS" in str(refusal.value)
    assert "WORKER_MEMORY" in str(refusal.value)
    assert "hunter2" not in str(refusal.value), "a value may be a password"
    assert refusal.value.__cause__ is None


LOGS_TWO_LINES = """
import logging, structlog
from readie_infra.logging import configure_logging
log = structlog.stdlib.get_logger("readie_worker")
configure_logging({format!r}, "info")
log.info("artifacts loaded", checkpoints=3)
log.debug("not this one")
logging.getLogger("botocore.credentials").info("nor this one")
secret = "hunter2"
try:
    raise ValueError("broken")
except ValueError:
    logging.getLogger("uvicorn").exception("it %s", "failed")
"""


def logged(rendering: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", LOGS_TWO_LINES.format(format=rendering)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == ""
    return ran.stderr


def test_json_logs_are_one_object_a_line_whoever_logs() -> None:
    lines = [json.loads(line) for line in logged("json").splitlines()]
    assert [line["event"] for line in lines] == ["artifacts loaded", "it failed"]
    assert (lines[0]["checkpoints"], lines[0]["level"]) == (3, "info")
    assert "ValueError: broken" in lines[1]["exception"]
    assert lines[1]["logger"] == "uvicorn"


def test_console_logs_show_no_local_variables() -> None:
    text = logged("console")
    assert "checkpoints=3" in text
    assert "ValueError: broken" in text
    assert 'secret = "hunter2"' not in text.replace("│", "")
    assert "not this one" not in text


def test_importing_the_package_configures_nothing() -> None:
    program = (
        "import readie_infra.logging, readie_infra.store, logging; print(logging.root.handlers)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
    assert logging.root is logging.getLogger()

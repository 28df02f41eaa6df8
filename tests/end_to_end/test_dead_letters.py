"""A poison call: run as often as it allows, then parked, looked at, run again and dropped by command."""

import os
import re
import signal

import pytest
from click.testing import CliRunner

import readie
from readie import remote
from readie._cli import main


def command(*words: str, status: int = 0) -> str:
    ran = CliRunner().invoke(main, ["dead", *words])
    assert ran.exit_code == status, ran.output
    return ran.output


@remote(retries=1)
def poison() -> None:
    print("about to die", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_poison_call_is_parked_and_can_be_run_again_and_dropped(client: readie.Client) -> None:
    with pytest.raises(readie.SandboxDiedError) as caught:
        poison()
    assert caught.value.receipt is not None
    call_id = caught.value.receipt.call_id
    assert "poison" in command("list")
    shown = command("show", call_id)
    assert "after 2 attempts" in shown
    assert "about to die" in shown
    again = re.search(r"runs again as (call-\w+)", command("requeue", call_id))
    assert again is not None
    with pytest.raises(readie.SandboxDiedError):
        client.call(again[1]).get()
    assert "is dropped" in command("drop", again[1])
    assert "not among the dead letters" in command("show", again[1], status=1)
    assert "not among the dead letters" in command("drop", call_id, status=1)

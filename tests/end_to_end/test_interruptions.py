"""Calls longer than one answer, and a gateway that goes away in the middle of one."""

import io
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import readie
from readie import remote
from support.redis_servers import RedisServer
from support.stack import Stack, running_stack


@pytest.fixture
def own_stack(valkey: RedisServer, short_path: Path) -> Iterator[Stack]:
    """Holds an answer for a second at most."""
    with running_stack(valkey.url, short_path, settings={"READIE_WAIT_WINDOW": "1"}) as stack:
        yield stack


@remote
def count(to: int) -> int:
    import time

    for number in range(to):
        print(number)
        time.sleep(0.5)
    return to


def test_a_call_longer_than_the_window_loses_and_repeats_no_line(
    own_stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    with readie.Client(own_stack.url, own_stack.token) as client:
        assert count.bind(client=client)(8) == 8
        shown = capsys.readouterr().err
        assert shown.split() == [str(number) for number in range(8)]
        call = count.bind(client=client).spawn(4)
        assert call.get(60) == 4
        assert "".join(line.text for line in call.logs).split() == ["0", "1", "2", "3"]


def test_a_gateway_that_dies_in_the_middle_is_waited_for(
    own_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine takes longer to start a gateway than the client's nine seconds of patience.
    monkeypatch.setattr("readie._service.BROKEN_TRIES", 60)

    runs = threading.Event()

    class Watch(io.StringIO):
        def write(self, text: str) -> int:
            runs.set()
            return len(text)

    with (
        readie.Client(own_stack.url, own_stack.token) as client,
        redirect_stderr(Watch()),
        ThreadPoolExecutor(1) as threads,
    ):
        counted = threads.submit(count.bind(client=client), 10)
        assert runs.wait(60)
        gateway = own_stack.gateway
        assert gateway is not None
        gateway.send_signal(signal.SIGKILL)
        gateway.wait(30)
        own_stack.start_gateway()
        assert counted.result(100) == 10

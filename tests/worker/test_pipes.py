import asyncio
import os
from collections.abc import Iterator
from io import RawIOBase

import pytest

from readie_worker.output import Output, Piece
from readie_worker.pipes import Pipes


class Ends:
    """Both pipes of a sandbox that the test plays."""

    def __init__(self) -> None:
        self.stdout, to_stdout = os.pipe()
        self.stderr, to_stderr = os.pipe()
        self.to_stdout = os.fdopen(to_stdout, "wb", buffering=0)
        self.to_stderr = os.fdopen(to_stderr, "wb", buffering=0)


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    with both.to_stdout, both.to_stderr:
        yield both


async def test_what_is_in_the_pipes_is_taken_at_once(ends: Ends) -> None:
    output = Output()
    pipes = Pipes(ends.stdout, ends.stderr, output)
    ends.to_stdout.write(b"out")
    ends.to_stderr.write(b"err")
    pipes.read_now()
    assert output.finish() == [Piece("stdout", "out"), Piece("stderr", "err")]
    pipes.close()
    pipes.close()


async def test_a_writer_never_waits_while_the_loop_runs(ends: Ends) -> None:
    output = Output()
    pipes = Pipes(ends.stdout, ends.stderr, output)
    told = asyncio.Event()
    pipes.on_output = told.set
    size = 10_000_000
    await asyncio.wait_for(asyncio.to_thread(_write_all, ends.to_stdout, b"x" * size), timeout=60)
    await pipes.read_to_end(grace=0)
    assert told.is_set()
    pieces = output.finish()
    assert sum(len(piece.text) + piece.gap for piece in pieces if not piece.gap) < size
    assert any(piece.gap for piece in pieces)
    pipes.close()


async def test_the_end_of_both_pipes_ends_the_wait(ends: Ends) -> None:
    output = Output()
    pipes = Pipes(ends.stdout, ends.stderr, output)
    waiting = asyncio.create_task(pipes.read_to_end(grace=60))
    await asyncio.sleep(0)
    ends.to_stdout.write(b"last words")
    ends.to_stdout.close()
    ends.to_stderr.close()
    await asyncio.wait_for(waiting, timeout=30)
    assert output.finish() == [Piece("stdout", "last words")]


async def test_a_pipe_that_somebody_holds_open_is_waited_for_only_so_long(ends: Ends) -> None:
    output = Output()
    pipes = Pipes(ends.stdout, ends.stderr, output)
    ends.to_stdout.write(b"said")
    await asyncio.wait_for(pipes.read_to_end(grace=0.05), timeout=30)
    assert output.finish() == [Piece("stdout", "said")]
    pipes.close()


def _write_all(pipe: RawIOBase, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[pipe.write(view) or 0 :]

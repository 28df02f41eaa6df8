"""Runs host programs with a deadline, and leaves none behind."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended, and what it printed where that was asked for."""

    code: int
    stdout: str
    stderr: str


async def run(
    command: Sequence[str | Path],
    deadline_s: float,
    *,
    text: str | None = None,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int = DEVNULL,
) -> Done:
    """Run it to its end; ``text`` goes to its standard input. Raises `TimeoutError` and `OSError`.

    On any error, cancellation too, the program is killed before this returns.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=stdin if text is None else PIPE, stdout=stdout, stderr=stderr
    )
    try:
        async with asyncio.timeout(deadline_s):
            printed, complained = await process.communicate(None if text is None else text.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.communicate())
    return Done(process.returncode or 0, _text(printed), _text(complained))


def _text(printed: bytes | None) -> str:
    return (printed or b"").decode(errors="replace")

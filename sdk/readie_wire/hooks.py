"""Functions that a package wants called around a checkpoint, kept where user and executor meet.

``readie.before_checkpoint`` and ``readie.after_restore`` are these decorators. They do nothing in a
process that is never checkpointed.
"""

from collections.abc import Callable
from typing import TypeVar

Hook = TypeVar("Hook", bound=Callable[[], object])

_before_checkpoint: list[Callable[[], object]] = []
_after_restore: list[Callable[[], object]] = []


def before_checkpoint(function: Hook) -> Hook:
    """Call the function, without arguments, before this process is saved or first forked.

    The place to close connections and files. The last registered runs first.
    """
    _before_checkpoint.append(function)
    return function


def after_restore(function: Hook) -> Hook:
    """Call the function, without arguments, in every clone, before it takes a call.

    The place to reseed and to forget what must not be shared. Clones may be made ahead of their
    call: its environment and secrets are not there yet. The first registered runs first.
    """
    _after_restore.append(function)
    return function


def run_before_checkpoint() -> None:
    """Run the hooks; the first error stops and is raised, the process must not be saved then."""
    for function in reversed(_before_checkpoint):
        function()


def run_after_restore() -> None:
    """Run the hooks; the first error stops and is raised, the clone must not take a call then."""
    for function in _after_restore:
        function()

"""The board of waiting requests, without any: what it does when clients go and come back."""

from typing import TYPE_CHECKING, cast

from readie_gateway.waiting import WaitingBoard
from readie_infra.store import CallStore

if TYPE_CHECKING:
    from collections.abc import Callable


class Cancelling:
    """A store that only cancels; ``meanwhile`` happens while it does."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def cancel(self, call_id: str, _reason: str) -> None:
        self.cancelled.append(call_id)
        self.meanwhile()


async def test_a_client_that_comes_back_while_others_are_cancelled_keeps_its_call() -> None:
    store = Cancelling()
    board = WaitingBoard(cast(CallStore, store), "gateway-1", abandon_grace_s=0)
    for call_id in ("call-1", "call-2"):
        board.abandon(call_id)
    store.meanwhile = board.watch("call-2").__enter__
    await board._cancel_abandoned()
    assert store.cancelled == ["call-1"]

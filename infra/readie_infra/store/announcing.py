"""Tells those who follow a bucket that something was published, so that they need not wait to look."""

from readie_infra.connecting import LONGEST_BLOCK_S
from readie_infra.store.steps import Steps, milliseconds
from readie_wire.keys import Keys


class Announcing:
    _steps: Steps
    _keys: Keys

    async def announce(self) -> None:
        """Let everybody who follows the bucket look at it now. What is there, the bucket alone says."""
        await self._steps.run("announce")

    async def news(self, waiter: str, last_id: str, block_s: float) -> str:
        """Wait up to ``block_s`` for an announcement after ``last_id`` (``"0-0"`` at first).

        Answers the next ``last_id``, which is the same when there was none. One may be lost with
        the server's data: also look now and then.
        """
        block = milliseconds(min(block_s, LONGEST_BLOCK_S))
        answer = await self._steps.wait(
            waiter, "XREAD", "BLOCK", block, "STREAMS", self._keys.news, last_id
        )
        if not answer:
            return last_id
        ((_, entries),) = answer
        latest: bytes = entries[-1][0]
        return latest.decode()

"""Waiting for what happens to calls: snapshots, doorbells, orders."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from readie_infra.connecting import LONGEST_BLOCK_S
from readie_infra.store.reading import READ_FIELDS, named, pairs, read_record
from readie_infra.store.steps import Steps, milliseconds
from readie_infra.store.values import Cursor, Ending, Order, Snapshot, StoredEvent, Wakeup
from readie_wire.keys import Keys

EVENTS_AT_ONCE = 1_000  # bounds one read; a call with more is read on
DOORBELLS_AT_ONCE = 1_000
ORDERS_AT_ONCE = 100


class Watching:
    _steps: Steps
    _keys: Keys

    async def read(self, call_id: str, after_seq: int = 0) -> Snapshot | None:
        """The call and its events after ``after_seq``, at one instant; `None` when unknown."""
        found = await self._steps.run(
            "read", call_id, f"{after_seq + 1}-0", EVENTS_AT_ONCE, *READ_FIELDS
        )
        if found is None:
            return None
        values, entries = found
        record = read_record(call_id, named(READ_FIELDS, values))
        events = [
            StoredEvent(int(entry.split(b"-")[0]), fields[1].decode(), fields[3])
            for entry, fields in entries
        ]
        return Snapshot(record, events, more=len(events) == EVENTS_AT_ONCE)

    async def known(self, call_ids: Sequence[str]) -> set[str]:
        """Those of the calls that still have a record."""
        found = await asyncio.gather(
            *(self._steps.ask("EXISTS", self._keys.call(call_id)) for call_id in call_ids)
        )
        return {call_id for call_id, there in zip(call_ids, found, strict=True) if there}

    async def subscribe(self, call_id: str, gateway: str) -> bool:
        """Ring this gateway from now on. `False`: the call has ended or is unknown; read it."""
        return bool(await self._steps.run("subscribe", call_id, gateway))

    async def doorbells(
        self, gateway: str, last_id: str, block_s: float
    ) -> tuple[str, dict[str, Ending | None]]:
        """Wait up to ``block_s`` for doorbells after ``last_id`` (``"0-0"`` at first).

        Answers the next ``last_id`` and the calls to look at, with their end where the doorbell
        told it: most calls are short, and need not be read. One reader a gateway.
        Bells can be lost with the server's data: also look at waiting calls now and then.
        """
        stream = self._keys.doorbell(gateway)
        heard = await self._wait(gateway, {stream: last_id}, DOORBELLS_AT_ONCE, block_s)
        rung = heard.get(stream)
        if not rung:
            return last_id, {}
        calls = {fields[1].decode(): _ending(fields) for _, fields in rung}
        return rung[-1][0].decode(), calls

    async def orders_or_bell(
        self, worker: str, flavor: str, cursor: Cursor, block_s: float
    ) -> Wakeup:
        """Wait up to ``block_s`` for an order to this worker or its flavor's bell.

        Begin with ``Cursor()`` and pass on ``wakeup.cursor``: a bell that rings between a take
        that found nothing and this wait is not missed. Take when it rang, and now and then.
        """
        control, bell = self._keys.control(worker), self._keys.bell(flavor)
        after = {control: cursor.control, bell: cursor.bell}
        heard = await self._wait(worker, after, ORDERS_AT_ONCE, block_s)
        orders, rung = heard.get(control, []), heard.get(bell, [])
        return Wakeup(
            orders=[_order(fields[1]) for _, fields in orders],
            bells=len(rung),
            cursor=Cursor(
                control=orders[-1][0].decode() if orders else cursor.control,
                bell=rung[-1][0].decode() if rung else cursor.bell,
            ),
        )

    async def _wait(
        self, waiter: str, after: Mapping[str, str], count: int, block_s: float
    ) -> dict[str, list[tuple[bytes, list[bytes]]]]:
        """Stream → its new entries: id, names and values by turns."""
        block = milliseconds(min(block_s, LONGEST_BLOCK_S))
        options = ("COUNT", count, "BLOCK", block)
        answer = await self._steps.wait(
            waiter, "XREAD", *options, "STREAMS", *after, *after.values()
        )
        return {
            stream.decode(): [(entry, fields) for entry, fields in entries]
            for stream, entries in answer or []
        }


def _ending(fields: Sequence[bytes]) -> Ending | None:
    if len(fields) == 2:  # the call alone: something has happened to it
        return None
    told = pairs(fields)
    return Ending(int(told[b"seq"]), told)


def _order(text: bytes) -> Order:
    value: dict[str, Any] = json.loads(text)
    return Order(
        value["type"],
        str(value.get("call", "")),
        str(value.get("reason", "")),
        str(value.get("session", "")),
    )

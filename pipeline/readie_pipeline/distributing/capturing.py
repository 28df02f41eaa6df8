"""Captures as jobs of a queue: see `readie_pipeline.capture.captures.Captures`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass

from redis import Redis

from readie_infra.errors import InfraError
from readie_infra.objects import ObjectStore
from readie_pipeline.capture.capturer import Capturer
from readie_pipeline.capture.captures import Outcome, Task
from readie_pipeline.distributing.carrying import meeting_point, receive
from readie_pipeline.distributing.jobs import CaptureOrder, run_capture
from readie_pipeline.distributing.queues import captures_of, queue_on
from readie_pipeline.distributing.sharing import POLL_S, Answer, Order, SharedRun
from readie_pipeline.errors import CaptureError
from readie_wire.manifest import CheckpointMeta, ManifestError

_SLACK_S = 1_800  # on top of importing and saving: starting the sandbox, sending the images


@dataclass(frozen=True, slots=True)
class QueuedCaptures:
    """Workers capture; ``capturer``, which is open, proves what they send.

    ``timeout`` in seconds for the imports of one checkpoint; ``store`` is where images pass
    through, for a runtime that stores some. See `SharedRun` for ``lost_after`` and for the
    `QueueError` that a run raises.
    """

    connection: Redis
    capturer: Capturer
    timeout: float
    lost_after: float
    store: ObjectStore | None

    async def __call__(self, tasks: Sequence[Task]) -> AsyncGenerator[tuple[Task, Outcome], None]:
        waiting = list(reversed(tasks))
        queue = queue_on(self.connection, captures_of(self.capturer.runtime))
        meeting = nullcontext("") if self.store is None else meeting_point(self.store)
        with meeting as key, closing(SharedRun[Task](queue, self.lost_after)) as run:
            while waiting or run.waits:
                while waiting and run.has_room:
                    task = waiting.pop()
                    run.give(task, self._order(task, key))
                ended = run.collect()
                for task, answer in ended:
                    yield task, await self._bring(task, answer)
                if not ended:
                    await asyncio.sleep(POLL_S)

    def _order(self, task: Task, meeting: str) -> Order:
        order = CaptureOrder(
            task.checkpoint_id,
            list(task.imports),
            self.capturer.conditions().to_json(),
            self.timeout,
            meeting,
        )
        return Order(run_capture, (order.to_json(),), 2 * int(self.timeout) + _SLACK_S)

    async def _bring(self, task: Task, answer: Answer) -> Outcome:
        """What a worker captured, proven here; whatever is wrong with it is its outcome."""
        if "error" in answer:
            return CaptureError(str(answer["error"]))
        try:
            meta = CheckpointMeta.from_json(answer["meta"])
            if (meta.id, tuple(meta.imports)) != (task.checkpoint_id, tuple(task.imports)):
                raise CaptureError(f"the worker has captured {meta.id} instead")
            task.folder.mkdir()
            if self.store is not None:
                await asyncio.to_thread(receive, self.store, task.folder, meta.image_files)
            await self.capturer.prove(meta, task.folder)
        except CaptureError as error:
            return error
        except (KeyError, ManifestError, InfraError, OSError) as error:
            return CaptureError(f"what the worker captured cannot be used: {error!r}")
        return meta

"""Which sandbox, of those made ahead, a call gets: of its own checkpoint, or one that is as good."""

from readie_worker.pool import Pool
from readie_worker.running import Running
from readie_worker.selection import Selection
from readie_worker.starting import LiveSandbox


def claim_ready(pool: Pool, selection: Selection, call: Running) -> LiveSandbox | None:
    """A ready sandbox for a call whose start is planned; the plan is changed where it stands in."""
    planned = call.planned
    if planned.checkpoint is not None:
        live = pool.claim(planned.checkpoint.key)
        if live is not None:
            return live
    instead = selection.stand_in(call.record, call.options, planned, pool.ready_keys)
    if instead is None or instead.checkpoint is None:
        return None
    live = pool.claim(instead.checkpoint.key, wanted=False)
    if live is not None:
        call.planned = instead
    return live

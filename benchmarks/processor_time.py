"""What a warm call costs in processor time, by process; the calls' own processes apart."""

from collections import defaultdict
from collections.abc import Callable

from benchmarks.reporting import Table, milliseconds
from benchmarks.stack import Process, Stack, descendants

CALLS = 300  # the kernel counts what ended children used in ticks of 10 ms
BLOCK = 50  # calls between two looks: other work on the machine comes and goes

GATEWAY, WORKER, SERVER = "gateway", "worker", "Valkey or Redis"
SUPERVISOR, ZYGOTES = "readie up", "zygotes (they fork)"
CHILDREN = "the calls' own processes (their fork, run and exit)"
SERVICE = (GATEWAY, WORKER, SERVER)


def measure(stack: Stack, call: Callable[[], object]) -> Table:
    """One call at a time. Of each part the median over blocks of calls."""
    blocks: dict[str, list[float]] = defaultdict(list)
    for _ in range(CALLS // BLOCK):
        call()
        before = _used(stack.pid)
        for _ in range(BLOCK):
            call()
        after = _used(stack.pid)
        for part in before:
            blocks[part].append((after.get(part, 0.0) - before[part]) / BLOCK)
    cost = {part: sorted(values)[len(values) // 2] for part, values in blocks.items()}
    table = Table("Processor time per warm call", ["process", "ms"])
    for part in SERVICE:
        table.rows.append([part, milliseconds(cost.pop(part, 0.0))])
    together = sum(float(row[1]) for row in table.rows)
    table.rows.append(["**gateway, worker and server together**", f"**{together:.2f}**"])
    table.rows += [[part, milliseconds(value)] for part, value in cost.items()]
    table.remarks.append(
        f"- Medians over {CALLS // BLOCK} blocks of {BLOCK} calls, one call at a time, a fresh "
        "process for each.\n"
    )
    return table


def _used(root: int) -> dict[str, float]:
    """Seconds used so far, by part. Processes that the zygotes forked count once they have ended."""
    processes = descendants(root)
    zygotes = {one.pid for one in processes if _part(one) == ZYGOTES}
    used: dict[str, float] = defaultdict(float)
    for process in processes:
        if process.parent in zygotes:
            continue
        used[_part(process)] += process.seconds()
        if process.pid in zygotes:
            used[CHILDREN] += process.children_seconds()
    return used


def _part(process: Process) -> str:
    words = {
        "readie_gateway": GATEWAY,
        "readie_worker": WORKER,
        "readie_executor": ZYGOTES,
        "redis-server": SERVER,
        "valkey": SERVER,
    }
    for word, part in words.items():
        if word in process.command:
            return part
    return SUPERVISOR

"""A pandas function, run cold and behind its imports; prints arrive while it runs."""

import time

import readie


@readie.remote
def revenue(rows: int) -> dict[str, int]:
    import numpy as np
    import pandas as pd

    print(f"pandas {pd.__version__} is here, summing {rows:,} rows")
    frame = pd.DataFrame({"shop": np.arange(rows) % 3, "amount": np.arange(rows)})
    return {f"shop {shop}": int(sum_) for shop, sum_ in frame.groupby("shop").amount.sum().items()}


def show(title: str, call: readie.Call) -> float:
    began = time.perf_counter()
    value = call.get(timeout=120)
    receipt = call.receipt
    print(f"{title}: {value}")
    print(
        f"  start kind {receipt.start_kind}, checkpoint {receipt.checkpoint}; ms: "
        f"queue {receipt.queue_ms:.1f}, start {receipt.start_ms:.1f}, "
        f"imports {receipt.import_ms:.1f}, run {receipt.run_ms:.1f}, total {receipt.total_ms:.1f}"
    )
    print(f"  seen here after {(time.perf_counter() - began) * 1000:.0f} ms")
    return receipt.total_ms


cold = revenue.bind(disable_optimized_execution=True)
colds, forks = [], []
for turn in range(1, 4):
    colds.append(show(f"cold {turn}", cold.spawn(300_000)))
    forks.append(show(f"behind its imports {turn}", revenue.spawn(300_000)))
ratio = sorted(colds)[1] / sorted(forks)[1]
print(f"median of three: {sorted(colds)[1]:.0f} ms cold, {sorted(forks)[1]:.0f} ms behind imports")
print(f"the same function, {ratio:.1f} times sooner")

"""Calls in gVisor: cold, restored for the call, and restored ahead of it."""

import time

from shop import receipt_line, revenue

cold = revenue.bind(disable_optimized_execution=True)
colds, ahead = [], []
for turn in range(1, 4):
    call = cold.spawn(300_000)
    call.get(timeout=120)
    colds.append(call.receipt.total_ms)
    print(f"cold, {turn}: {receipt_line(call.receipt)}")
    time.sleep(2)  # the pool is filled while nobody calls
    # More at once than sandboxes were restored ahead: the last ones are restored on request.
    for at_once in [revenue.spawn(300_000) for _ in range(4)]:
        at_once.get(timeout=120)
        ahead.append(at_once.receipt)
        print(f"behind its imports, {turn}: {receipt_line(at_once.receipt)}")
print(f"median cold: {sorted(colds)[1]:.0f} ms from call to result")
for kind in sorted({receipt.start_kind for receipt in ahead}):
    times = sorted(
        receipt.start_ms + receipt.import_ms + receipt.run_ms
        for receipt in ahead
        if receipt.start_kind == kind
    )
    print(
        f"median {kind}: {times[len(times) // 2]:.0f} ms from start to result, {len(times)} calls"
    )

"""The function that the demo calls, and how it shows a receipt."""

import readie
from readie_wire.outcome import Receipt


@readie.remote
def revenue(rows: int) -> dict[str, int]:
    """Sum made-up amounts by shop."""
    import numpy as np
    import pandas as pd

    print(f"pandas {pd.__version__} is here, summing {rows:,} rows")
    frame = pd.DataFrame({"shop": np.arange(rows) % 3, "amount": np.arange(rows)})
    return {
        f"shop {shop}": int(total) for shop, total in frame.groupby("shop").amount.sum().items()
    }


def receipt_line(receipt: Receipt) -> str:
    """The start kind and where the milliseconds went."""
    return (
        f"{receipt.start_kind} ({receipt.checkpoint or 'no checkpoint'}); ms: "
        f"queue {receipt.queue_ms:.1f}, start {receipt.start_ms:.1f}, "
        f"imports {receipt.import_ms:.1f}, run {receipt.run_ms:.1f}, total {receipt.total_ms:.1f}"
    )

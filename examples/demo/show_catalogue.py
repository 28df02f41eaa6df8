"""Print the checkpoints of a catalogue read from standard input."""

import json
import sys

catalogue = json.load(sys.stdin)
print(f"flavor {catalogue['flavor']}, alpha {catalogue['alpha']} s/MB")
for checkpoint in catalogue["checkpoints"]:
    names = ", ".join(checkpoint["canonical"]) or "(nothing)"
    saved = sum(catalogue["items"][item]["load_time"] for item in checkpoint["items"])
    print(
        f"  {checkpoint['id']}: {names}: {checkpoint['size_mb']:.0f} MB, holds {saved:.2f} s of imports"
    )

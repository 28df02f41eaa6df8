"""Print the checkpoints of a catalogue read from standard input."""

import json
import sys

catalogue = json.load(sys.stdin)
print(f"generation {catalogue['generation']}, flavor {catalogue['flavor']}")
for checkpoint in catalogue["checkpoints"]:
    names = ", ".join(checkpoint["canonical"]) or "nothing"
    print(
        f"  {checkpoint['id']}: {names}; with what these import {checkpoint['items']} items, "
        f"{checkpoint['size_mb']:.0f} MB"
    )

"""From a plan to a generation: capture each checkpoint, time it, write everything at once."""

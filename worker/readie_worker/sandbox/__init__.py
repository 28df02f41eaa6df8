"""One protocol for every way to run a call apart from its worker, and the drivers behind it."""

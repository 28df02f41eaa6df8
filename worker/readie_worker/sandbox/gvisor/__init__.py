"""Sandboxes of gVisor: `runsc`, what it is given, and what it leaves on the host."""

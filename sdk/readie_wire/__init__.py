"""What two processes must agree on: formats, names, tables and rules. Standard library only, no I/O."""

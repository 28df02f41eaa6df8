"""The program inside every sandbox: it connects out, takes one call and runs it."""

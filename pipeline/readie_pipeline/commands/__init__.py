"""One module a command of ``readie-pipeline``."""

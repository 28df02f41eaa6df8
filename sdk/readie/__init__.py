"""Run a Python function on a worker that has already imported what the function needs."""

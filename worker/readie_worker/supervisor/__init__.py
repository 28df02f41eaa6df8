"""A small process beside each worker that ends its sandboxes when the worker cannot."""

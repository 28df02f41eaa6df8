"""A generation for an environment that nobody has planned for: what it most likely will import."""

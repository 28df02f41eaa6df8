"""A page about one generation, for people."""

"""Real parts and fixtures that the tests of several components share."""

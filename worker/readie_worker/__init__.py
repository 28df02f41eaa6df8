"""Takes calls that fit, gives each a sandbox, relays its output and settles its outcome."""

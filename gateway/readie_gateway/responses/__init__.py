"""How a call is told to its client: one JSON document, server-sent events, or frames."""

"""Builds generations offline: measures imports, plans checkpoints and captures them."""

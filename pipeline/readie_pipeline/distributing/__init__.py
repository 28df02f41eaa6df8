"""Long work shared by several machines, as jobs of an RQ queue."""

"""Which imports go into which checkpoint. Pure: the same input gives the same plan."""

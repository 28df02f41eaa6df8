"""One module for each resource of the API; each gives its routes for a set of services."""

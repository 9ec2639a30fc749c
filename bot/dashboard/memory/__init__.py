"""Memory in the page: what is kept, found, changed and forgotten, as its visitor may see it."""

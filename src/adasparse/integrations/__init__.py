"""Other libraries' models made sparse; each needs its own extra."""

"""The object store for guests: each reaches one prefix of it, with a key of its own."""

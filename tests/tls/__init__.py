"""TLS in tests: an authority of their own, and clients of a stack's edge."""

"""Apps that are not static: the sandbox that serves one, how requests are held while its database
moves to the next, and how the one before is stopped."""

"""Previews: web servers in sandboxes at hosts of their own, which wake the sandbox."""

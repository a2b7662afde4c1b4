"""Where guests find the guest gateway: one address and port, the same on every node.

It stays in the memory of sandboxes that sleep, so it never changes.
"""

# Link-local, so that no route of a guest's own leads there.
ADDRESS = "169.254.42.1"
PORT = 8790
URL = f"http://{ADDRESS}:{PORT}"

"""How a request from inside a guest is told from another's: by the address that it came from, and
by a secret that is made from a key of the box.

It knows rows of sandboxes alone; what a guest may do with its secret is decided in the rooms above.
"""

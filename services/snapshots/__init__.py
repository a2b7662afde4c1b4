"""What becomes of a snapshot once it was captured: stored outside its node, and deleted in the end.

It decides when files and objects may go. Capturing is an operation of the sandbox:
`services.sandboxes.capture`.
"""

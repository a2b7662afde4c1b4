"""What an operator is shown of nodes, operations and sandboxes, and why something waits.

It reads every subject and changes none.
"""

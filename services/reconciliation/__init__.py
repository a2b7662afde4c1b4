"""What becomes of rows once a node has looked at what is really on its host.

It decides which rows are compared, and writes what was found, by the operation protocol as
everybody else. It does not look: the node does, and says what it saw.
"""

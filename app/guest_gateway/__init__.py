"""The process that guests may talk to, and nothing else of the host: what it offers them has a room
each here."""

"""VM hosts: which there are, which of them takes a sandbox, what they keep ready and what they have
stored.

It decides where a machine goes and with which ports. It never talks to a host; hosts report and are
told by queue.
"""

"""What each lifecycle operation does on this host; claimed and finished by `nodeworker.runner`.

A handler may run again after a kill at any instruction. It writes no row itself: it returns an
outcome.
"""

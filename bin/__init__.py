"""The commands behind the Makefile: a stack of the service on one box, for development, tests and
measurement."""

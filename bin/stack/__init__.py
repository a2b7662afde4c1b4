"""A whole service on one host: its servers, its processes, its ports, and what is left when it is
killed.

Used by `make up`, by the tests and by the measurements. It decides where things run, not what they
do.
"""

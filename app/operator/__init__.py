"""The commands of `svc-admin`: what an operator looks at and does by hand.

Each module is one subject and only reads arguments, calls the services and prints; what is allowed
is decided there. It speaks no HTTP.
"""

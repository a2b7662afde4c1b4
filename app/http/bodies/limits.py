"""The most bytes that JSON bodies of the different routes may have: what is longer is 413 before it
is parsed. Raw bodies are limited by settings."""

# Of every route that does not say otherwise.
JSON_BYTES = 256 * 1024
# A batch of files.
WRITE_BYTES = 16 * 1024 * 1024
# Of the identity host, where strangers may send names, a password, an id.
IDENTITY_BYTES = 16 * 1024

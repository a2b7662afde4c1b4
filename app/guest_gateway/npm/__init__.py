"""The registry cache: packages of npm for guests, fetched once by the host and kept."""

"""Request bodies and queries, shape only: fields, types and limits. Rules are in services."""

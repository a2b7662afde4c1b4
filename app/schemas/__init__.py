"""Bodies, queries and answers, shape only: fields, types and limits. One definition loads or dumps,
and describes itself in OpenAPI. Rules are in services."""

"""The object store as the processes use it that store or fetch: the one place that speaks S3."""

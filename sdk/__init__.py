"""What users of the service import; stands alone."""

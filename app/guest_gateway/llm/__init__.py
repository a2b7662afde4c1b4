"""The LLM proxy: requests of guests, and of services, passed on to the operator's upstreams with
the operator's key; what they use is written down (docs/llm.md)."""

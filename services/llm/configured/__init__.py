"""What the file of SVC_LLM_CONFIG says: upstreams, models, prices and limits.

It decides what the file may say, reads it, and reads it again when it has changed; what is wrong
with it is refused, and the last good one stays. Which of the upstreams a call goes to is decided in
`services.llm.routing`, who may call in `services.llm.allowed_calls`.
"""

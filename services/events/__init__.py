"""Events: recorded with the change they tell of, delivered to receivers on schedule, kept for
operators.

It decides what an event says, who is told and when a delivery is given up. It does not decide when
something happened, and it sends nothing: the posting is done by `tasks`.
"""

"""Bodies of requests and answers: how they are read and written, and how much memory they may take.

What a body may say is decided in `app/schemas`.
"""

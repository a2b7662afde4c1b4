"""Who people are: accounts, browser sessions, tokens and API keys, and when a signing key may go.

It decides whether a credential is good and whose it is. It does not decide what the owner may do
with a sandbox.
"""

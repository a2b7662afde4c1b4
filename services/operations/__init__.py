"""The protocol of everything that takes long: begun by a request, claimed by one worker, finished
once.

It decides which operation may start in which status, who may work on it and what is announced to
which queue. It does not know what an operation does, nor what its end means for events, ports or
usage: that is `services.sandboxes`. It imports no other room of `services`.
"""

"""A token bucket per owner on the sandbox routes, kept in Redis so that all processes of the API
and of shells share it; off by default.

Redis being away must not stop the service: then every request is let through, and Redis is not
asked again for a while, so that a hung one costs one short wait now and then instead of one per
request.
"""
import logging
import math
import threading
import time

import redis
from flask import Flask, g, request

from config.settings import Settings
from services.errors import RateLimited

log = logging.getLogger(__name__)

PREFIX = "/v1/sandboxes"
_REST_S = 5.0
# Fills by ARGV[1] per second up to ARGV[2], by Redis's clock; returns 0 or the milliseconds until a
# token is there.
_TAKE = """
local clock = redis.call('TIME')
local present = clock[1] + clock[2] / 1000000
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local passed = math.max(0, present - tonumber(kept[2] or present))
local tokens = math.min(burst, tonumber(kept[1] or burst) + passed * rate)
local wait_ms = 0
if tokens >= 1 then tokens = tokens - 1 else wait_ms = math.ceil((1 - tokens) / rate * 1000) end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.6f', present))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return wait_ms
"""


class Buckets:
    """The buckets of all owners, filling by `rate_per_s` up to `burst` requests."""

    def __init__(self, redis_url: str, rate_per_s: float, burst: int) -> None:
        client = redis.Redis.from_url(redis_url, socket_timeout=0.2, socket_connect_timeout=0.2)
        self._take = client.register_script(_TAKE)
        self._arguments = (rate_per_s, max(1, burst))
        self._resting_until = 0.0
        self._lock = threading.Lock()

    def take(self, owner_id: str) -> None:
        """Take one request out of the owner's bucket; raises RateLimited when it is empty."""
        if time.monotonic() < self._resting_until:
            return
        try:
            wait_ms = int(self._take(keys=[f"svc:rate:{owner_id}"], args=self._arguments))
        except (redis.RedisError, OSError) as error:
            with self._lock:
                self._resting_until = time.monotonic() + _REST_S
            log.warning("no rate limits while Redis is away (%s)", type(error).__name__)
            return
        if wait_ms:
            raise RateLimited("Too many requests.", retry_after_s=math.ceil(wait_ms / 1000))


def install(app: Flask, settings: Settings, *, prefix: str = PREFIX) -> None:
    """Limit the routes of `app` below `prefix` that take a credential, if the settings ask for it;
    goes after `credentials.install`."""
    if settings.sandbox_rate_per_s <= 0:
        return
    buckets = Buckets(settings.redis_url, settings.sandbox_rate_per_s, settings.sandbox_rate_burst)

    def limit() -> None:
        principal = g.get("principal")
        if principal is not None and request.path.startswith(prefix):
            buckets.take(principal.account_id)

    app.before_request(limit)

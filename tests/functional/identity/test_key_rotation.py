"""A signing key is rotated under traffic, a stolen one is replaced at once; on several hosts."""
import os
import threading
import time
from collections import Counter

import jwt
import pytest

from app.http.identity_mirror import REFETCH_S
from tests.stack.credentials import bearer
from tests.stack.identity_site import NO_DEPLOY, SANDBOXES, attempt, refused, statuses, token_of
from tests.stack.waiting import until

pytestmark = pytest.mark.slow


class Traffic(threading.Thread):
    """A user at work: a fresh token every second, requests with it on every API host, what fails is
    kept."""

    def __init__(self, site, apis):
        super().__init__(daemon=True)
        self.site, self.apis = site, apis
        self.ended = threading.Event()
        self.failures, self.kids, self.count = [], Counter(), 0

    def run(self):
        browser = self.site.sign_in()
        client = self.site.client
        service = bearer(self.site.people["SVC_SERVICE_TOKEN"])
        while not self.ended.is_set():
            token = token_of(browser)
            self.kids[jwt.get_unverified_header(token)["kid"]] += 1
            fresh_until = time.monotonic() + 1
            while time.monotonic() < fresh_until:
                for url in self.apis:
                    for headers, path, wanted in ((bearer(token), SANDBOXES, 200),
                                                  (service, NO_DEPLOY, 404)):
                        answer = client.get(url + path, headers=headers)
                        self.count += 1
                        time.sleep(0.005)  # a user is not the whole load of a host
                        if answer.status_code != wanted:
                            self.failures.append((path, answer.status_code, answer.text))


def test_a_signing_key_is_rotated_and_retired_without_one_failed_request(site, apis):
    old = site.operator("keys list").split()[0]
    traffic = Traffic(site, apis)
    traffic.start()
    try:
        new = site.operator("keys rotate").strip()
        listed = site.operator("keys list")
        assert f"{old} EdDSA signing" in listed and f"{new} EdDSA published" in listed
        assert "about to sign" in refused(site, "rotate")
        assert "it signs" in listed and "it signs" not in listed.splitlines()[1]
        key_set = site.client.get(f"{site.stack.auth_url}/.well-known/jwks.json").json()
        published = {key["kid"] for key in key_set["keys"]}
        assert published == {old, new}
        until(lambda: traffic.kids[new] > 1, 30)
        assert "signs; rotate first" in refused(site, f"retire {new}")
        # Service tokens last a year: theirs is the last word on when the old key may go.
        assert "service token" in refused(site, f"retire {old}")
        _, successor = site.mint("development")
        traffic.ended.set()
        traffic.join(30)
        assert traffic.failures == [] and traffic.kids[old] and traffic.kids[new]
        print(f"rotated under {traffic.count} requests")
        last_of_old = site.people["SVC_SERVICE_TOKEN"]
        revoke_all_of(site, old)
        until(lambda: "retired" in attempt(site, f"retire {old}"), 30)
        until(lambda: all(statuses(url, bearer(last_of_old), NO_DEPLOY) == {401: 12}
                          for url in apis), 20)
        assert [statuses(url, bearer(successor), NO_DEPLOY) for url in apis] == [{404: 12}] * 2
        assert [statuses(url, bearer(token_of(site.sign_in()))) for url in apis] == [{200: 12}] * 2
    finally:
        traffic.ended.set()


def revoke_all_of(site, kid):
    for line in site.operator("service-token-list").splitlines():
        if kid in line:
            site.operator(f"service-token-revoke {line.split()[0]}")


def test_a_stolen_key_is_replaced_at_once(site, apis):
    _, stolen = site.mint("with-stolen-key")
    assert statuses(apis[0], bearer(stolen), NO_DEPLOY) == {404: 12}
    old = next(line.split()[0]
               for line in site.operator("keys list").splitlines()
               if " signing " in line)
    new = site.operator("keys rotate --now").strip()
    # Nobody was told beforehand: the first token makes every process look, a moment later if it has
    # just looked.
    browser = site.sign_in()
    token = token_of(browser)
    assert jwt.get_unverified_header(token)["kid"] == new
    until(lambda: [statuses(url, bearer(token)) for url in apis] == [{200: 12}] * 2, 5 * REFETCH_S)
    assert "retired" in attempt(site, f"retire {old} --force")
    until(lambda: all(statuses(url, bearer(stolen), NO_DEPLOY) == {401: 12} for url in apis), 20)
    assert os.listdir(site.stack.settings.signing_keys_dir) and not list(
        site.stack.settings.signing_keys_dir.glob(f"{old}*"))

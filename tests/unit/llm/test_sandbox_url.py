"""The address of a sandbox's LLM proxy: made again each time, believed only if we made it."""
import dataclasses

import pytest

from config.guest_gateway import URL
from config.settings import Settings, SettingsError
from services.llm.sandbox_url import check_key, proxy_url, sandbox_of, secret_of

SETTINGS = Settings(llm_config="/somewhere/llm.json", guest_secret="a key of this box")


def with_key(key):
    return dataclasses.replace(SETTINGS, guest_secret=key)


def test_the_url_of_a_sandbox_is_the_same_each_time_and_its_own():
    url = proxy_url(SETTINGS, "abc")
    assert url == proxy_url(SETTINGS, "abc") == f"{URL}/s/{secret_of(SETTINGS, 'abc')}"
    assert url != proxy_url(SETTINGS, "abd") and url != proxy_url(with_key("other"), "abc")


def test_without_a_proxy_there_is_no_url():
    none = dataclasses.replace(SETTINGS, llm_config="")
    assert proxy_url(none, "abc") is None
    check_key(dataclasses.replace(none, guest_secret=""))


def test_a_proxy_without_a_key_is_refused_at_start():
    for key in ("", " , "):
        with pytest.raises(SettingsError, match="SVC_GUEST_SECRET"):
            check_key(with_key(key))


@pytest.mark.parametrize("bend", [
    lambda secret: secret[:-1], lambda secret: secret + "0", lambda secret: "abd" + secret[3:],
    lambda secret: secret.upper(), lambda secret: secret.replace(".", ""), lambda secret: "",
    lambda secret: ".", lambda secret: secret[:4], lambda secret: "é" + secret,
    lambda secret: secret[:-1] + "\udc80", lambda secret: f"{secret}.{secret}",
])
def test_a_secret_that_we_did_not_make_is_nobodys(bend):
    secret = secret_of(SETTINGS, "abc")
    assert sandbox_of(SETTINGS, secret) == "abc"
    assert sandbox_of(SETTINGS, bend(secret)) is None
    assert sandbox_of(with_key("other"), secret) is None


def test_an_old_key_is_believed_as_long_as_it_is_named():
    old, both = secret_of(with_key("old"), "abc"), with_key("new, old")
    assert sandbox_of(both, old) == "abc" == sandbox_of(both, secret_of(both, "abc"))
    assert secret_of(both, "abc") == secret_of(with_key("new"), "abc")
    assert sandbox_of(with_key("new"), old) is None

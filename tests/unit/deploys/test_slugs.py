"""Which names an app may have."""
import pytest

from services.deploys.apps.slugs import RESERVED, SLUG_MOST, check_slug
from services.errors import InvalidRequest


@pytest.mark.parametrize("slug", ["a", "0", "hello", "my-app-2", "a" * SLUG_MOST])
def test_a_label_of_a_host_name_is_taken(slug):
    assert check_slug(slug) == slug


@pytest.mark.parametrize("slug", [
    "", "-a", "a-", "a--b", "A", "a.b", "a_b", "a b", "a/b", "ä", "a\n", "a" * (SLUG_MOST + 1),
    *sorted(RESERVED),
])
def test_what_is_none_or_ours_is_refused(slug):
    with pytest.raises(InvalidRequest, match="slug"):
        check_slug(slug)

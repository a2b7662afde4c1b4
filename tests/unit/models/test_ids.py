"""Ids are a prefix and twelve characters that are neither vowels nor look-alikes."""
import re

from models.ids import new_id


def test_an_id_is_its_prefix_and_twelve_characters_that_read_aloud_well():
    for _ in range(200):
        assert re.fullmatch("usr[b-df-hj-km-np-tv-xz2-9]{12}", new_id("usr"))
    assert not set("aeiouy01l") & set("".join(new_id() for _ in range(200)))


def test_no_two_ids_are_the_same():
    assert len({new_id() for _ in range(1000)}) == 1000

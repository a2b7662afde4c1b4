"""How many may sign in at once, of one account and of one address."""
from contextlib import ExitStack

import pytest

from app.identity.sign_in_places import OF_ONE_ACCOUNT, OF_ONE_ADDRESS, PLACES, SignInPlaces
from services.errors import Unavailable


@pytest.mark.parametrize(("email", "address", "most"), [
    ("{}@example.test", "10.0.0.{}", PLACES), ("{}@example.test", "10.0.0.1", OF_ONE_ADDRESS),
    ("{}@example.test", "2001:db8::{}", OF_ONE_ADDRESS),
    ("alice@example.test", "10.0.0.{}", OF_ONE_ACCOUNT)])
def test_who_has_all_its_places_is_refused_and_others_are_not(email, address, most):
    places = SignInPlaces()
    with ExitStack() as held:
        for number in range(most):
            held.enter_context(places.place(email.format(number), address.format(number)))
        with pytest.raises(Unavailable), places.place(f" {email}".format("X").upper(),
                                                      address.format(99)):
            pass
        if most < PLACES:
            with places.place("another@example.test", "192.0.2.1"):
                pass
    with places.place(email.format(1), address.format(1)):
        pass

"""How much a guest may store."""
import asyncio
import time
from datetime import datetime, timezone

import pytest

from app.guest_gateway.replica_store import quota as quota_module
from app.guest_gateway.replica_store.quota import Quota
from app.guest_gateway.rows import Rows
from objects.store import StoredObject, StoreUnavailable
from services.errors import Forbidden, Unavailable


class Listed:
    """A store whose lists are counted, and take `list_s` each."""

    def __init__(self, *sizes, list_s=0.0):
        self.sizes, self.lists, self.kept, self.list_s = sizes, 0, [], list_s
        self.uploads = []

    def list_uploads(self, prefix):
        return [{"Key": f"{prefix}x", "UploadId": name} for name in self.uploads]

    def give_up_uploads(self, prefix, keep):
        self.kept.append(keep)
        self.uploads = [name for name in self.uploads if name in keep]

    def list_objects(self, prefix):
        self.lists += 1
        time.sleep(self.list_s)
        if None in self.sizes:
            raise StoreUnavailable("away")
        return [StoredObject(f"{prefix}{number}", size, datetime.now(timezone.utc))
                for number, size in enumerate(self.sizes)]


def taken(store, *sizes, **limits):
    """How many of the objects are taken, one after another."""
    quota = Quota(store, Rows(), **{"bytes_most": 1000, "objects_most": 10, **limits})

    async def take():
        for number, size in enumerate(sizes):
            try:
                await quota.take("p/", *(size if isinstance(size, tuple) else (size,)))
            except Forbidden:
                return number
        return len(sizes)
    return asyncio.run(take())


@pytest.mark.parametrize(("listed", "sizes", "expected"), [
    ((), (500, 500, 1), 2), ((900,), (100, 1), 1), ((1001,), (0,), 0), ((), (1001,), 0),
    ((1,) * 10, (1,), 0), ((1,) * 8, (1, 1, 1), 2),
    ((), ((600, "a"), (400, "b"), (1, "a")), 2), ((), ((600, "a"), 401), 1),
    ((), tuple((1, str(number)) for number in range(20)), 8),
    ((), tuple((1, str(number % 8)) for number in range(20)), 20)])
def test_what_is_taken(listed, sizes, expected):
    assert taken(Listed(*listed), *sizes) == expected


def test_the_store_is_not_asked_each_time():
    store = Listed()
    assert taken(store, *[100] * 12) == 10
    assert store.lists == 1


def test_a_complete_upload_counts_as_an_object():
    quota = Quota(Listed(), Rows(), bytes_most=1000)

    async def upload():
        for number in range(3):
            await quota.take("p/", 300, f"{number}")
            quota.upload_ended("p/", f"{number}")
        with pytest.raises(Forbidden):
            await quota.take("p/", 101)
        await quota.take("other/", 101)
    asyncio.run(upload())


def test_uploads_that_nothing_comes_to_are_given_up_for_others():
    store = Listed()
    assert taken(store, *((1, str(number)) for number in range(9)), upload_idle_s=0.0) == 9
    assert store.kept == [set()]


async def begin(quota, store):
    async with quota.beginning("p/"):
        await asyncio.sleep(0)
        store.uploads.append(f"{len(store.uploads)}")


@pytest.mark.parametrize("there", [0, 5, 8])
def test_uploads_that_are_only_begun_count_and_those_that_were_there_before(there):
    store = Listed()
    store.uploads = [f"before {number}" for number in range(there)]
    quota = Quota(store, Rows())

    async def begin_all():
        return await asyncio.gather(*[begin(quota, store) for _ in range(12)],
                                    return_exceptions=True)
    answers = asyncio.run(begin_all())
    assert len(store.uploads) == 8 and answers.count(None) == 8 - there
    assert {type(answer) for answer in answers} - {type(None)} == {Forbidden}


def test_uploads_that_were_only_begun_are_given_up_for_others():
    store = Listed()
    quota = Quota(store, Rows(), upload_idle_s=0.0)

    async def begin_all():
        for _ in range(9):
            await begin(quota, store)
        await quota.take("p/", 1, "0")
    asyncio.run(begin_all())
    assert store.kept == [set()] and store.uploads == ["0"]


def test_uploads_that_the_store_has_no_more_are_forgotten():
    """Ended where their guest did not hear of it, or by somebody else."""
    store = Listed()
    quota = Quota(store, Rows())

    async def begin_again():
        for _ in range(8):
            await begin(quota, store)
        with pytest.raises(Forbidden):
            await begin(quota, store)
        store.uploads = []
        await begin(quota, store)
        await quota.take("p/", 1, "0")
    asyncio.run(begin_again())


def test_all_who_write_to_a_prefix_wait_for_one_look(monkeypatch):
    """Also where a look takes longer than its answer counts, and finds the prefix full."""
    monkeypatch.setattr(quota_module, "_LOOK_S", 0.1)
    store = Listed(*[1] * 10, list_s=0.2)
    quota = Quota(store, Rows(), objects_most=10)

    async def write():
        for _ in range(2):
            answers = await asyncio.gather(*[quota.take("p/", 1) for _ in range(30)],
                                           return_exceptions=True)
            assert {type(answer) for answer in answers} == {Forbidden}
            await asyncio.sleep(0.15)
    asyncio.run(write())
    assert store.lists == 2


def test_what_comes_during_a_look_is_counted():
    store = Listed(100)
    quota = Quota(store, Rows(), bytes_most=1000)

    async def write():
        await quota.take("p/", 800)
        store.list_s = 0.2
        look = asyncio.create_task(quota._look("p/"))
        await asyncio.sleep(0.05)
        await quota.take("p/", 100)
        await look
        with pytest.raises(Forbidden):
            await quota.take("p/", 801)
        await quota.take("p/", 800)
    asyncio.run(write())


def test_nothing_is_taken_while_the_store_is_away():
    with pytest.raises(Unavailable):
        taken(Listed(None), 1)
    with pytest.raises(Unavailable):
        asyncio.run(begin(Quota(Listed(None), Rows()), None))

"""The store keeps what a snapshot needs and is swept of the rest; images go with the last one."""
import dataclasses
import io
from datetime import timedelta

import pytest
from botocore.awsrequest import AWSResponse
from urllib3 import HTTPResponse

from models.database import connection, now
from models.deploys import DeployPrefix
from models.snapshots import Snapshot, StoreImage
from nodeworker.snapshots import store_sweep
from nodeworker.wiring import NodeDeps
from objects.store import ObjectStore
from services.deploys import version_prefixes
from services.snapshots import stored_images
from services.snapshots.stored_objects import disk_key, folder, image_folder
from tests.fakes.outside import ListQueue
from tests.rows.snapshots import remove, row, take
from tests.stack.waiting import becomes


@pytest.fixture
def sweeper(sim_stack, rows, driver):
    """Sweeps the store at once, whatever is to be removed."""
    settings = dataclasses.replace(sim_stack.settings, store_grace_s=0.0, orphan_brake=1000)

    def sweep(**changes):
        host = NodeDeps(dataclasses.replace(settings, **changes), driver, ListQueue(),
                        lambda sandbox: None)
        store_sweep.sweep_store(host, ObjectStore(settings))
    return sweep


def test_the_store_is_swept_of_what_no_row_needs(alice, sim_stack, store, sandbox, sweeper,
                                                 tmp_path, caplog):
    kept, archived = take(alice, sandbox), take(alice, sandbox, "filesystem-snapshot")
    becomes(lambda: row(kept).uploaded_to_store)
    sweeper()  # what other tests left
    stray = tmp_path / "stray"
    stray.write_bytes(b"stray")
    strays = {
        disk_key("snapneverwas"), f"{folder('snapgone')}anything", f"{folder(kept)}left-behind",
        f"{folder(archived)}project-99.tar.gz"
    }
    for key in strays:
        store.put_once(key, stray)

    def stored():
        return {each.key for each in store.list_objects("snapshots/")}

    before = stored()
    sweeper(store_grace_s=3600.0)
    assert stored() == before, "younger than the grace period"
    for brake in (1, 0):
        caplog.clear()
        sweeper(orphan_brake=brake)
        assert stored() == before and "removing none" in caplog.text
    sweeper()
    assert before - stored() == strays & before and strays <= before
    assert disk_key(kept) in stored() and row(archived).archive_key in stored()


def test_what_is_stored_of_a_version_without_a_row_is_removed(rows, store, sweeper):
    """A worker stored on after its app was deleted, and was killed."""
    gone, kept, other = "apps/app_gone/v1-1/", "apps/app_kept/v1-1/", "apps/app_kept/other/"
    with connection():
        version_prefixes.keep("app_kept", 1, 1)
    sweeper()  # what other tests left
    for prefix in (gone, kept, other):
        store.put_stream(f"{prefix}files/x", [b"x"])

    def is_known():
        with connection():
            return DeployPrefix.select().where(DeployPrefix.prefix == gone).exists()

    sweeper(store_grace_s=3600.0)
    assert not is_known(), "younger than the grace period"
    sweeper(orphan_brake=0)
    assert not is_known()
    sweeper()
    becomes(lambda: (store.find_size(f"{gone}files/x"), is_known()), (None, False))
    assert store.find_size(f"{kept}files/x") and store.find_size(f"{other}files/x")
    with connection():
        assert DeployPrefix.get_by_id(kept).due_at is None
        version_prefixes.collect(DeployPrefix.prefix == kept)
    store.remove_all(other)


@pytest.fixture
def alone(rows):
    """As if the snapshots of other tests stood on another image."""
    with connection():
        Snapshot.update(image_key="others").where(Snapshot.image_key == "simulated").execute()
    yield
    with connection():
        Snapshot.update(image_key="simulated").where(Snapshot.image_key == "others").execute()


def test_an_image_stays_in_the_store_while_any_snapshot_stands_on_it(
    alice, sim_stack, deps, store, sandbox, alone, sweeper
):
    first, second = take(alice, sandbox), take(alice, sandbox)
    becomes(lambda: row(first).uploaded_to_store and row(second).uploaded_to_store)

    def files():
        folder = image_folder(row(first).image_key)
        return sorted(each.key.removeprefix(folder) for each in store.list_objects(folder))

    everything = ["image.json", "rootfs.qcow2"]
    assert row(second).image_key == row(first).image_key
    remove(sim_stack, deps, first)
    sweeper()
    assert files() == everything
    remove(sim_stack, deps, second)
    sweeper(store_grace_s=3600.0)
    assert files() == everything, "used a moment ago"
    sweeper()
    assert files() == []
    with connection():
        assert not StoreImage.select().where(StoreImage.key == "simulated").exists()
    third = take(alice, sandbox)
    becomes(lambda: row(third).uploaded_to_store)
    assert files() == everything


def test_an_upload_never_relies_on_an_image_that_is_going(alice, sim_stack, rows, store, sandbox):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    with connection():
        StoreImage.create(key="going", removing=True)
    with pytest.raises(stored_images.ImageBeingRemoved):
        stored_images.add_reference(taken, "going", 1)
    assert stored_images.begin_removals(grace_s=0) == ["going"]
    stored_images.removed("going")
    stored_images.add_reference(taken, "going", 1)
    assert stored_images.begin_removals(grace_s=0) == []
    with connection():
        StoreImage.delete().where(StoreImage.key == "going").execute()
        Snapshot.update(image_key="simulated").where(Snapshot.id == taken).execute()


def test_uploads_from_before_images_were_named_keep_every_image(alice, sim_stack, rows, sandbox):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    with connection():
        StoreImage.create(key="older", used_at=now() - timedelta(days=9))
        Snapshot.update(image_key=None).where(Snapshot.id == taken).execute()
    assert "older" not in stored_images.begin_removals(grace_s=60)
    with connection():
        Snapshot.update(image_key="simulated").where(Snapshot.id == taken).execute()
    assert "older" in stored_images.begin_removals(grace_s=60)
    stored_images.removed("older")


def test_a_store_that_refuses_to_remove_many_at_a_time_is_asked_for_each(store):
    """As stores do that want another checksum than boto3's, or do not know the call."""
    def refuse(request, **_):
        body = b"<Error><Code>MissingContentMD5</Code></Error>"
        raw = HTTPResponse(io.BytesIO(body), preload_content=False)
        return AWSResponse(request.url, 400, {}, raw)

    for name in ("a", "b"):
        store.put_stream(f"apps/of/{name}", [b"x"])
    store._client.meta.events.register("before-send.s3.DeleteObjects", refuse)
    store.remove_all("apps/of/")
    assert not list(store.list_objects("apps/of/"))


def test_what_has_a_prefix_is_removed_many_at_a_time(store, monkeypatch):
    """Names of files are their owners': what XML could misread, too."""
    monkeypatch.setattr("objects.store._REMOVED_AT_ONCE", 2)
    requests = []
    store.put_stream("apps/of-other", [b"x"])
    for name in ("a", "b & <c>", "d/e.js", "ü", "f+%20"):
        store.put_stream(f"apps/of/{name}", [b"x"])
    events = store._client.meta.events
    events.register("before-call.s3", lambda model, **_: requests.append(model.name))
    store.remove_all("apps/of/")
    assert requests.count("DeleteObjects") == 3 and "DeleteObject" not in requests
    assert [each.key for each in store.list_objects("apps/of")] == ["apps/of-other"]
    store.remove_all("apps/of")

"""A store of objects: what it reads, by how many requests, and one version of every object."""

import pickle
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from obstore.store import MemoryStore, S3Store

import ingot
from ingot import native
from ingot.errors import (
    AccessError,
    NotFoundError,
    ReadOnlyError,
    RemoteError,
    UnsafeError,
    UnsupportedError,
)
from ingot.options import Options
from ingot.stores import Extent, ObjectStore
from ingot.stores.objects import store as object_store
from ingot.stores.objects.client import (
    Answers,
    CutOffError,
    FetchedObject,
    ObjectClient,
    Requested,
)
from ingot.stores.objects.pace import Pace
from ingot.stores.objects.url import ObjectURL
from tests import fault_proxy
from tests.seaweed import S3Server

# The twin reads and verifies whole chunks.
NATIVE = native.choice().name == "native"


class Requests:
    """Counts requests, the batches that they come in, and the bytes that they bring."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[Any]] = []
        self.fetched = 0
        each, get, arriving = ObjectClient.each, ObjectClient.get, ObjectClient.arriving

        def counted_each(client: ObjectClient, call: Any, items: Any) -> Any:
            if items:
                self.batches.append(list(items))
            return each(client, call, items)

        def counted_arriving(client: ObjectClient, wanted: Any, answers: Answers) -> Any:
            self.batches.append(list(wanted))
            return arriving(client, wanted, answers)

        def counted_get(
            client: ObjectClient, wanted: Requested, answers: Answers | None = None
        ) -> FetchedObject | None:
            found = get(client, wanted, answers)
            self.fetched += 0 if found is None else len(found.data)
            return found

        monkeypatch.setattr(ObjectClient, "each", counted_each)
        monkeypatch.setattr(ObjectClient, "get", counted_get)
        monkeypatch.setattr(ObjectClient, "arriving", counted_arriving)

    def reset(self) -> None:
        self.batches.clear()
        self.fetched = 0


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)


def upload(folder: Path, url: str, storage: dict[str, Any] | None = None) -> None:
    """Copy a dataset into a bucket, as other programs do."""
    address = ObjectURL.parse(url, storage)
    for file in folder.rglob("*"):
        if file.is_file() and file.name != ".lock":
            key = f"{address.path}/{file.relative_to(folder).as_posix()}"
            address.store().put(key, file.read_bytes())


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(6)}/data/x.zarr"


VALUES = np.arange(4_000_000).reshape(2000, 2000)


def test_an_array_is_read_from_s3(tmp_path: Path, s3_server: S3Server) -> None:
    ingot.array(VALUES, tmp_path / "x", format="zarr3", chunks=(500, 500))
    upload(tmp_path / "x", "s3://reading/x.zarr", s3_server.storage())
    array = ingot.open("s3://reading/x.zarr", options=Options(storage=s3_server.storage()))
    assert (array[:] == VALUES).all()
    assert array[1234, 567] == VALUES[1234, 567]
    assert (array[3:1900:7, 40] == VALUES[3:1900:7, 40]).all()
    assert "ingotsecret" not in repr(array) + repr(array.info)


WALK = np.cumsum(np.random.default_rng(1).integers(-9, 10, (512, 512)), axis=1)
NOISE = np.random.default_rng(2).integers(0, 2**62, (512, 512))


@pytest.mark.parametrize(
    ("rows", "codec"),
    [(WALK, None), (NOISE, numcodecs.Blosc("lz4", 5, blocksize=32 << 10))],
    ids=["a random walk in the default codec", "noise in blocks of 32 KiB"],
)
def test_an_element_takes_three_round_trips_from_a_cold_open(
    tmp_path: Path, url: str, requests: Requests, rows: Any, codec: Any
) -> None:
    ingot.array(rows, tmp_path / "x", format="zarr3", chunks=(256, 512), codec=codec)
    assert rows[:256].nbytes == 1 << 20
    upload(tmp_path / "x", url)
    assert ingot.open(url)[77, 301] == rows[77, 301]
    assert len(requests.batches) == 3
    if NATIVE:
        assert requests.fetched < 40 << 10


def test_all_chunks_are_fetched_at_once(tmp_path: Path, url: str, requests: Requests) -> None:
    ingot.array(VALUES, tmp_path / "x", format="zarr3", chunks=(500, 500))
    upload(tmp_path / "x", url)
    array = ingot.open(url)
    requests.reset()
    assert (array[:] == VALUES).all()
    # The chunks and what was read at opening, then the record once more.
    assert [len(batch) for batch in requests.batches] == [17, 1]


def test_noise_is_stored_in_blocks_that_are_cheap_to_fetch(url: str, requests: Requests) -> None:
    # Half of the bytes are noise, so that the chunk is compressed, but little.
    noise = np.random.default_rng(3).integers(0, 2**32, (512, 512))
    ingot.array(noise, url, chunks=(256, 512))
    array = ingot.open(url)
    requests.reset()
    assert array[77, 301] == noise[77, 301]
    if NATIVE:
        assert requests.fetched < 40 << 10


def test_what_never_changes_takes_two_round_trips(
    tmp_path: Path, url: str, requests: Requests
) -> None:
    ingot.array(WALK, tmp_path / "x", format="zarr3", chunks=(256, 512))
    upload(tmp_path / "x", url)
    storage = {"unchanging": True, "first_bytes": 1 << 20}
    array = ingot.open(url, options=Options(storage=storage))
    assert array[77, 301] == WALK[77, 301]
    assert len(requests.batches) == 2
    requests.reset()
    assert (array[:] == WALK).all()
    assert [len(batch) for batch in requests.batches] == [2]
    with pytest.raises(ReadOnlyError):
        ingot.open(url, "r+", options=Options(storage=storage))[0] = 1


def test_requests_that_reach_the_server_are_counted(s3_server: S3Server) -> None:
    """The numbers of `docs/object-stores.md`: a request more is a change of that page."""
    with fault_proxy.running(s3_server.endpoint) as proxy:
        # What is known of a server changes how much is fetched, unless it is stated.
        options = Options(storage=s3_server.storage(proxy.endpoint, first_bytes=4096))
        name = f"{secrets.token_hex(6)}.zarr"
        ingot.array(WALK, f"s3://reading/{name}", chunks=(64, 512), options=options)

        def counted(call: Callable[[], Any]) -> tuple[dict[str, int], Any]:
            proxy.begin(lambda request: fault_proxy.FINE)
            result = call()
            return dict(Counter(request.method for request in proxy.requests)), result

        # The record and the document; whether the bucket is a group.
        opened, array = counted(lambda: ingot.open(f"s3://reading/{name}", "r+", options=options))
        assert opened == {"GET": 2, "HEAD": 1}
        one, value = counted(lambda: array[77, 301])
        every, values = counted(lambda: array[:])
        assert value == WALK[77, 301]
        assert (values == WALK).all()
        if NATIVE:
            # The beginning of the chunk, the block, the end of the chunk, the record; the tag.
            assert one == {"GET": 4, "HEAD": 1}
            # Eight chunks and the record.
            assert every == {"GET": 9}
        # Read: the record, the document. Written: the record three times, chunk, document.
        requests, _ = counted(lambda: array.append(WALK[:64]))
        assert requests == {"GET": 2, "PUT": 5, "HEAD": 1}
        # The tags of three chunks; the record three times, and the chunks.
        requests, _ = counted(lambda: array.__setitem__(np.s_[:192], 5))
        assert requests == {"GET": 3, "PUT": 6, "HEAD": 3}


class Meddling:
    """Lets another writer replace all items while the second chunk is fetched, once."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writer = ingot.open(url, "r+")
        self.done = False
        self.proved = threading.Event()
        self._get, self._stored = ObjectClient._get_once, ObjectStore.stored_now
        monkeypatch.setattr(ObjectStore, "stored_now", lambda store: self._stored_now(store))

    def _stored_now(self, store: ObjectStore) -> Any:
        stored = self._stored(store)
        if threading.current_thread().name == "ingot-record":
            self.proved.set()
        return stored

    def replaces(self, wanted: Requested) -> bool:
        if wanted.span.key != "c/1" or self.done:
            return False
        self.done = True
        return True


def test_the_record_is_read_behind_the_chunks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ingot.array(np.ones(40, "i4"), url, chunks=4)
    reader, meddling = ingot.open(url), Meddling(url, monkeypatch)

    def get(client: ObjectClient, wanted: Requested, *rest: Any) -> FetchedObject | None:
        if meddling.replaces(wanted):
            # A record that is read too early is read while this waits.
            meddling.proved.wait(0.5)
            meddling.writer[:] = 7
        return meddling._get(client, wanted, *rest)

    monkeypatch.setattr(ObjectClient, "_get_once", get)
    assert np.unique(reader[:]).tolist() == [7]
    assert meddling.done


@pytest.mark.skipif(not NATIVE, reason="only the native kernel decodes chunks as they arrive")
def test_a_chunk_that_is_fetched_again_is_not_proved_by_an_earlier_record(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingot.array(np.ones(40, "i4"), url, chunks=4)
    reader, meddling = ingot.open(url), Meddling(url, monkeypatch)

    def get(
        client: ObjectClient, wanted: Requested, kept: Any, answers: Answers | None
    ) -> FetchedObject | None:
        if meddling.replaces(wanted):
            assert answers is not None
            answers.note(wanted)
            assert meddling.proved.wait(10)
            meddling.writer[:] = 7
            raise CutOffError("the answer was cut off")
        return meddling._get(client, wanted, kept, answers)

    monkeypatch.setattr(ObjectClient, "_get_once", get)
    assert np.unique(reader[:]).tolist() == [7]
    assert meddling.done


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores in memory count as servers, which readers read from without a third batch."""
    monkeypatch.setattr(ObjectStore, "has_quick_readers", True)


WHOLE = Options(storage={"first_bytes": 1 << 20})


@pytest.mark.skipif(not NATIVE, reason="the twin reads whole chunks, and asks for the record then")
@pytest.mark.usefixtures("far")
def test_the_record_comes_with_the_only_batch(url: str, requests: Requests) -> None:
    ingot.array(WALK, url, chunks=(256, 512))
    array = ingot.open(url, options=WHOLE)
    assert array[77, 301] == WALK[77, 301]
    assert [each.span.key for each in requests.batches[-1]] == ["c/0/0", "zarr.json", ".commit"]
    requests.reset()
    assert array[250:260, 3].tolist() == WALK[250:260, 3].tolist()
    assert [each.span.key for each in requests.batches[-1]] == ["c/0/0", "c/1/0", ".commit"]
    assert len(requests.batches) == 1
    # A writer that holds the record may be about to change a chunk.
    with ObjectStore.from_url(url, writable=True).writing():
        requests.reset()
        assert array[77, 301] == WALK[77, 301]
        assert len(requests.batches) == 2


@pytest.mark.skipif(not NATIVE, reason="the twin reads whole chunks, and asks for the record then")
@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("sign", ["notice", "times"])
def test_a_writer_between_the_requests_of_one_batch_is_found(
    url: str, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    """The record is read first, then a writer replaces all, then the second chunk is read."""
    size = 1 << 13
    noise = np.random.default_rng(1).integers(8, 2**62, 2 * size)
    ingot.array(noise, url, chunks=size)
    reader, writer = ingot.open(url, options=WHOLE), ingot.open(url, "r+")
    assert reader[0] == noise[0]
    if sign == "times":
        # A machine that is suspended may have clocks that stand still.
        monkeypatch.setattr(object_store, "_now", lambda: 0.0)
    fetched = {key: threading.Event() for key in ("c/0", ".commit")}
    get, done = ObjectClient._get_once, []

    def meddled(client: ObjectClient, wanted: Requested, *rest: Any) -> FetchedObject | None:
        if wanted.span.key == "c/1" and not done:
            assert all(each.wait(10) for each in fetched.values())
            done.append(wanted)
            writer[:] = 7
        found = get(client, wanted, *rest)
        if sign == "notice" and found is not None:
            # A server whose clock says nothing.
            found = found._replace(modified=0.0)
        if wanted.span.key in fetched:
            fetched[wanted.span.key].set()
        return found

    monkeypatch.setattr(ObjectClient, "_get_once", meddled)
    assert reader[size - 2 : size + 2].tolist() == [7] * 4
    assert done


@pytest.mark.skipif(not NATIVE, reason="the twin reads whole chunks")
@pytest.mark.usefixtures("far")
def test_chunks_that_come_sooner_than_a_round_trip_are_fetched_whole(
    url: str, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingot.array(NOISE, url, chunks=(64, 512))
    monkeypatch.setattr(Pace, "bytes_at_once", 300 << 10)
    requests.reset()
    array = ingot.open(url)
    assert array[77, 301] == NOISE[77, 301]
    assert len(requests.batches) == 2
    requests.reset()
    # Two chunks together would take longer: of each of them, few bytes are fetched first.
    assert array[63:65, 7].tolist() == NOISE[63:65, 7].tolist()
    assert {each.span.stop for each in requests.batches[0]} == {4096}
    requests.reset()
    assert ingot.open(url, options=Options(storage={"first_bytes": 4096}))[7, 7] == NOISE[7, 7]
    assert requests.fetched < 80 << 10


def test_checksums_are_compared_when_the_whole_chunk_is_fetched(tmp_path: Path, url: str) -> None:
    ingot.array(VALUES, tmp_path / "x", format="zarr3", chunks=(500, 500))
    chunk = tmp_path / "x" / "c" / "0" / "0"
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    upload(tmp_path / "x", url)
    with pytest.raises(ingot.errors.CorruptionError, match="checksum"):
        ingot.open(url)[:500, :500]
    with pytest.raises(ingot.errors.CorruptionError, match="checksum"):
        ingot.open(url, options=Options(verify="always"))[3, 4]
    if NATIVE:
        assert ingot.open(url)[3, 4] == VALUES[3, 4]


def test_near_ranges_are_one_request(requests: Requests) -> None:
    bucket = MemoryStore()
    bucket.put("d/a", bytes(range(256)) * 4096)
    store = ObjectStore(bucket, "d")
    found = store.read(
        [Extent("a", 7, 2), Extent("a", 100, 3), Extent("a", 900_000, 1), Extent("b")]
    )
    assert found == [b"\x07\x08", bytes([100, 101, 102]), bytes([900_000 % 256]), None]
    assert [len(batch) for batch in requests.batches] == [3]


@pytest.mark.parametrize("data", [b"B" * 100_000, None], ids=["replaced", "removed"])
def test_an_object_that_changes_between_two_ranges_is_an_error(data: bytes | None) -> None:
    bucket = MemoryStore()
    bucket.put("a", b"A" * 100_000)
    reading = ObjectStore(bucket).reading()
    assert reading.read([Extent("a", 0, 4)]) == [b"AAAA"]
    bucket.delete("a") if data is None else bucket.put("a", data)
    with pytest.raises(RemoteError, match=r"'a'.*(changed|removed)"):
        reading.read([Extent("a", 50_000, 4)])


def test_ranges_of_one_batch_are_of_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = MemoryStore()
    bucket.put("a", b"A" * 100_000)
    get, calls = ObjectClient.get, []

    def changing(client: ObjectClient, wanted: Requested, *rest: Any) -> FetchedObject | None:
        found = get(client, wanted, *rest)
        if not calls:
            bucket.put("a", b"B" * 100_000)
        calls.append(wanted)
        return found

    monkeypatch.setattr(ObjectClient, "get", changing)
    store = ObjectStore(bucket)
    found = store.read([Extent("a", 0, 2), Extent("a", 90_000, 2)])
    assert found in ([b"AA", b"AA"], [b"BB", b"BB"])


def test_documents_that_change_while_they_are_opened_are_read_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shape in (40, 50):
        ingot.create(tmp_path / str(shape), shape=shape, dtype="i4", format="zarr3", chunks=10)
    upload(tmp_path / "40", url)
    array = ingot.open(url)
    upload(tmp_path / "50", url)
    assert array.shape == (50,)


@pytest.mark.parametrize("reads", [False, True])
def test_a_transaction_begins_with_what_was_fetched_at_opening(url: str, reads: bool) -> None:
    ingot.array(np.arange(8), url, chunks=4)
    array = ingot.open(url, "r+")
    if reads:
        assert array[3] == 3
    with array.transaction():
        array[:] = 7
        array.attrs["x"] = 1
    assert ingot.open(url)[:].tolist() == [7] * 8


def test_wrong_credentials_and_missing_buckets_are_named(s3_server: S3Server) -> None:
    wrong = s3_server.storage(secret_access_key="not-the-one", retries=0)
    with pytest.raises(AccessError, match=r"s3://reading/nothing: .*403") as error:
        ingot.open("s3://reading/nothing", options=Options(storage=wrong))
    assert "not-the-one" not in f"{error.value!r} {error.value.__cause__} {error.value.__context__}"
    right = Options(storage=s3_server.storage(retries=0))
    with pytest.raises(NotFoundError, match="no such bucket"):
        ingot.open("s3://no-such-bucket/x", options=right)


def test_no_server_is_an_error_in_time() -> None:
    storage = {"endpoint": "http://127.0.0.1:9", "access_key_id": "k", "secret_access_key": "hush"}
    options = Options(storage={**storage, "retries": 1, "timeout": 2, "region": "us-east-1"})
    with pytest.raises(RemoteError, match="no connection") as error:
        ingot.open("s3://bucket/x", options=options)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["s3://me:hush@bucket/x", "https://me:hush@host/x", "https://host/x?sig=hush"]
)
def test_secrets_in_addresses_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UnsafeError) as error:
        ingot.open(url)
    assert "hush" not in str(error.value)


def test_secrets_are_in_no_pickle(tmp_path: Path, s3_server: S3Server) -> None:
    ingot.array([1, 2, 3], tmp_path / "x", format="zarr3")
    upload(tmp_path / "x", "s3://reading/pickled", s3_server.storage())
    array = ingot.open("s3://reading/pickled", options=Options(storage=s3_server.storage()))
    data = pickle.dumps(array)
    assert b"ingotsecret" not in data
    assert b"ingotkey" not in data
    store = S3Store("reading", **s3_server.storage(), client_options={"allow_http": True})
    given = ObjectStore(store, "pickled")
    assert given.location == "s3://reading/pickled"
    assert given.read([Extent("c/9")]) == [None]
    with pytest.raises(UnsupportedError, match="credentials"):
        pickle.dumps(given)


def test_pickled_handles_take_credentials_from_the_environment(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingot.array([1, 2, 3], tmp_path / "x", format="zarr3")
    upload(tmp_path / "x", "s3://reading/again", s3_server.storage())
    array = ingot.open("s3://reading/again", options=Options(storage=s3_server.storage()))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ingotkey")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ingotsecret")
    assert pickle.loads(pickle.dumps(array))[:].tolist() == [1, 2, 3]
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    assert ingot.open("s3://reading/again")[:].tolist() == [1, 2, 3]


def test_http_is_read_only(tmp_path: Path, http_folder: tuple[Path, str]) -> None:
    folder, address = http_folder
    ingot.array(VALUES[:100], folder / "x", format="zarr2", chunks=(30, 500))
    array = ingot.open(f"{address}/x")
    assert (array[:] == VALUES[:100]).all()
    with pytest.raises(ReadOnlyError):
        ingot.array([1], f"{address}/y")


@pytest.fixture
def http_folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder by plain HTTP."""
    import functools
    import http.server
    import threading

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *ignored: object) -> None:
            """Say nothing."""

    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield tmp_path, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()

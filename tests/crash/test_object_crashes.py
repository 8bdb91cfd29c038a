"""Writers to an object store that die at any request, and requests whose answers are lost."""

import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import IngotError, LockedError
from ingot.options import Options
from ingot.stores import Extent, ObjectStore
from ingot.stores.objects import client, turn
from ingot.stores.objects.url import ObjectURL
from tests import fault_proxy
from tests.crash import object_crowd
from tests.fault_proxy import DEAD, FINE, LOST, Fault, FaultProxy, Plan, Request
from tests.seaweed import S3Server


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy.running(s3_server.endpoint) as running:
        yield running


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send again at once: nothing is won by waiting for a plan that never changes."""
    monkeypatch.setattr(turn, "_PAUSE", 0.0001)
    monkeypatch.setattr(client, "_PAUSE", 0.0001)


@pytest.fixture
def direct(s3_server: S3Server) -> Options:
    return Options(storage=s3_server.storage())


@pytest.fixture
def faulty(s3_server: S3Server, proxy: FaultProxy) -> Options:
    storage = s3_server.storage(proxy.endpoint, retries=0, timeout=10)
    # Prove once that the server honours conditions, so that the requests of a change are its own.
    proxy.begin(lambda request: FINE)
    url = ObjectURL.parse("s3://crashes/proof", storage)
    turn.prove_conditions(ObjectStore(url, writable=True))
    return Options(storage=storage)


class Scenario(NamedTuple):
    """A dataset, a change of it, what is read of it, and a change after the crash."""

    make: Callable[[str, Options], object]
    change: Callable[[str, Options], object]
    read: Callable[[Any], Any]
    after: Callable[[Any], object]


def _array(rows: int) -> Callable[[str, Options], object]:
    def make(url: str, options: Options) -> object:
        return ingot.array(np.arange(rows) * 7, url, chunks=4, options=options, format="zarr3")

    return make


def _table(url: str, options: Options) -> object:
    columns = {"a": np.arange(5), "b": np.arange(5) * 0.5}
    return ingot.table(columns, url, chunks=4, options=options, format="bcolz")


def _opened(url: str, options: Options) -> Any:
    return ingot.open(url, "r+", options=options)


def _replace(url: str, options: Options) -> object:
    return ingot.array([[1, 2], [3, 4]], url, overwrite=True, options=options, format="zarr2")


def _assign(url: str, options: Options) -> None:
    _opened(url, options)[1:9] = np.arange(5000, 5008)


SCENARIOS = {
    "append to an array": Scenario(
        _array(10),
        lambda url, options: _opened(url, options).append(np.arange(7)),
        lambda array: array[:].tolist(),
        lambda array: array.append(np.array([123])),
    ),
    "several chunks": Scenario(
        _array(10),
        _assign,
        lambda array: array[:].tolist(),
        lambda array: array.append(np.array([123])),
    ),
    "append to a table": Scenario(
        _table,
        lambda url, options: _opened(url, options).append({"a": [7, 8], "b": [7.5, 8.5]}),
        lambda table: [table["a"][:].tolist(), table["b"][:].tolist()],
        lambda table: table.append({"a": [123], "b": [1.5]}),
    ),
    "another array in its place": Scenario(
        _array(10),
        _replace,
        lambda array: array[:].tolist(),
        lambda array: array.attrs.update({"x": 1}),
    ),
}


def _url() -> str:
    return f"s3://crashes/{secrets.token_hex(6)}"


def _store_of(dataset: Any) -> ObjectStore:
    store = dataset._handle.store
    assert isinstance(store, ObjectStore)
    return store


def _survive(dataset: Any) -> Any:
    """Let a writer count the last one as dead at once, without waiting for its lease."""
    store = _store_of(dataset)
    record = store.stored_now().record
    if record is not None:
        store.abandoned.add(record.transaction)
    return dataset


def _keys(url: str, options: Options) -> list[str]:
    return list(ObjectStore(ObjectURL.parse(url, options.storage)).client.walk())


def _after(scenario: Scenario, dataset: Any) -> Any:
    scenario.after(_survive(dataset))
    return scenario.read(dataset)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_writer_that_dies_at_any_request_leaves_the_old_or_the_new_state(
    name: str, proxy: FaultProxy, direct: Options, faulty: Options
) -> None:
    scenario = SCENARIOS[name]
    url = _url()
    scenario.make(url, direct)
    old = scenario.read(ingot.open(url, options=direct))
    proxy.begin(lambda request: FINE)
    scenario.change(url, faulty)
    numbers = _writing(proxy)
    new = scenario.read(ingot.open(url, options=direct))
    expected = {str(state): state for state in (old, new)}
    assert len(expected) == 2
    assert len(numbers) >= 4
    seen = set()
    for number, forward in itertools.product(numbers, (False, True)):
        url = _url()
        scenario.make(url, direct)
        proxy.begin(_dies(number, forward))
        with suppress(IngotError, OSError):
            scenario.change(url, faulty)
        state = scenario.read(ingot.open(url, options=direct))
        assert str(state) in expected, (number, forward)
        seen.add(str(state))
        again = _after(scenario, _opened(url, direct))
        assert again == _after_of(scenario, state, direct, name), (number, forward)
        assert [key for key in _keys(url, direct) if "/.g-" in f"/{key}"] == [], (number, forward)
    assert seen == set(expected)


def _writing(proxy: FaultProxy) -> range:
    """Return the numbers of the requests from the first on that writes."""
    first = next(each.number for each in proxy.requests if each.method == "PUT")
    return range(first, len(proxy.requests))


def _after_of(scenario: Scenario, state: Any, options: Options, name: str) -> Any:
    """Return what the change after the crash makes of a state, found by NumPy and thought."""
    if name == "append to a table":
        return [[*state[0], 123], [*state[1], 1.5]]
    return state if name == "another array in its place" else [*state, 123]


def _dies(number: int, forward: bool) -> Plan:
    """Return the plan of a writer that dies at a request, before or after the server gets it."""

    def plan(request: Request) -> Fault:
        if request.number < number:
            return FINE
        return LOST if request.number == number and forward else DEAD

    return plan


@pytest.mark.parametrize("name", ["append to an array", "several chunks"])
@pytest.mark.parametrize(
    "fault",
    [LOST, DEAD, Fault(status=500), Fault(status=503), Fault(cut=True)],
    ids=["answer lost", "request lost", "500", "503", "body cut"],
)
def test_one_fault_at_any_request_costs_a_repetition(
    name: str, fault: Fault, proxy: FaultProxy, direct: Options, faulty: Options
) -> None:
    scenario = SCENARIOS[name]
    url = _url()
    scenario.make(url, direct)
    proxy.begin(lambda request: FINE)
    scenario.change(url, faulty)
    numbers = (0, *_writing(proxy))
    new = scenario.read(ingot.open(url, options=direct))
    patient = Options(storage={**faulty.storage, "retries": 3})
    for number in numbers:
        url = _url()
        scenario.make(url, direct)
        proxy.begin(lambda request, at=number: fault if request.number == at else FINE)
        scenario.change(url, patient)
        assert scenario.read(ingot.open(url, options=direct)) == new, number


def test_a_refused_condition_is_no_commit(
    proxy: FaultProxy, direct: Options, faulty: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = _url()
    _array(10)(url, direct)
    array = _opened(url, Options(storage={**faulty.storage, "lease": 0.1}))
    monkeypatch.setattr(turn, "_PATIENCE", 0.2)
    proxy.begin(lambda request: Fault(status=412) if request.method == "PUT" else FINE)
    with pytest.raises(LockedError):
        array.append(np.arange(7))
    assert ingot.open(url, options=direct).shape == (10,)


@pytest.mark.parametrize(
    "without", [("if-match",), ("if-none-match",), ("if-match", "if-none-match")]
)
def test_servers_that_ignore_conditions_are_found_before_the_first_write(
    s3_server: S3Server, without: tuple[str, ...]
) -> None:
    with fault_proxy.running(s3_server.endpoint) as proxy:
        proxy.begin(lambda request: Fault(without=without))
        storage = {"endpoint": proxy.endpoint, "region": "us-east-1", "skip_signature": True}
        url = _url()
        with pytest.raises(ingot.errors.UnsupportedError, match="single_writer=True"):
            ingot.array([1, 2, 3], url, options=Options(storage=storage))
        alone = Options(storage={**storage, "single_writer": True})
        array = ingot.array([1, 2, 3], url, options=alone, chunks=2)
        array.append([4, 5])
        array[1:3] = [20, 30]
        assert ingot.open(url, options=alone)[:].tolist() == [1, 20, 30, 4, 5]


def test_servers_that_ignore_ranges_are_read_whole(s3_server: S3Server, direct: Options) -> None:
    url = _url()
    values = np.arange(300_000)
    ingot.array(values, url, chunks=100_000, options=direct)
    with fault_proxy.running(s3_server.endpoint) as proxy:
        proxy.begin(lambda request: Fault(without=("range",)))
        storage = {"endpoint": proxy.endpoint, "region": "us-east-1", "skip_signature": True}
        array = ingot.open(url, options=Options(storage=storage))
        assert array[123_456] == 123_456
        assert (array[:] == values).all()


def test_a_refused_chunk_is_an_error_and_never_the_fill_value(
    proxy: FaultProxy, direct: Options, faulty: Options
) -> None:
    url = _url()
    ingot.array(np.arange(1, 41), url, chunks=4, options=direct)
    proxy.begin(lambda request: Fault(status=403) if "/c/7" in request.path else FINE)
    array = ingot.open(url, options=faulty)
    with pytest.raises(ingot.errors.AccessError, match=r"'c/7'.*403"):
        array[:]
    with pytest.raises(ingot.errors.AccessError):
        ingot.open(url, options=Options(storage=faulty.storage, damaged="error"))[28]
    assert array[:28].tolist() == list(range(1, 29))


@pytest.mark.parametrize("removes", [False, True], ids=["replaced", "removed"])
def test_a_chunk_that_changes_between_two_ranges_is_never_a_mixture(
    removes: bool, proxy: FaultProxy, direct: Options, faulty: Options
) -> None:
    url = _url()
    old, new = (np.random.default_rng(seed).integers(0, 2**40, 200_000) for seed in (1, 2))
    for each, values in ((url, old), (f"{url}-new", new)):
        ingot.array(values, each, chunks=100_000, options=direct)
    bucket = ObjectStore(ObjectURL.parse(url, direct.storage), writable=True).client
    (other,) = ObjectStore(ObjectURL.parse(f"{url}-new", direct.storage)).read([Extent("c/1")])
    assert other is not None

    def plan(request: Request) -> Fault:
        # A program that is not Ingot changes the chunk before its second range is fetched.
        if "/c/1" in request.path and "if-match" in request.headers:
            bucket.delete(["c/1"]) if removes else bucket.put("c/1", other)
        return FINE

    # Two ranges, however fast the server is known to be.
    stated = {**(faulty.storage or {}), "first_bytes": 4096}
    array = ingot.open(url, options=Options(storage=stated))
    proxy.begin(plan)
    if native.choice().name == "native":
        with pytest.raises(ingot.errors.RemoteError, match=r"'c/1'.*(changed|removed)"):
            array[150_000]
    else:
        assert array[150_000] == old[150_000]  # Read by one range.


def test_a_writer_whose_lease_ran_out_is_replaced(s3_server: S3Server, direct: Options) -> None:
    url = _url()
    _array(10)(url, direct)
    short = Options(storage=s3_server.storage(lease=0.3))
    dead = ObjectStore(ObjectURL.parse(url, short.storage), writable=True)
    held = turn.ObjectTurn(dead)
    held.__enter__()
    held._stop_heart()
    array = _opened(url, short)
    array.append(np.array([99]))
    assert array.shape == (11,)
    with pytest.raises(LockedError, match="took over"):
        held.commit(ingot.stores.Commit(publish=(ingot.stores.Put("zarr.json", b"{}"),)))
    assert ingot.open(url, options=direct)[:].tolist() == [*(np.arange(10) * 7).tolist(), 99]


def test_a_living_writer_is_waited_for(s3_server: S3Server, direct: Options) -> None:
    url = _url()
    _array(10)(url, direct)
    short = Options(storage=s3_server.storage(lease=0.4))
    first = ObjectStore(ObjectURL.parse(url, short.storage), writable=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(turn, "_PATIENCE", 0.6)
        with first.writing(), pytest.raises(LockedError, match="held by process"):
            _opened(url, short).append(np.array([99]))
    assert ingot.open(url, options=direct).shape == (10,)


def test_a_crowd_loses_doubles_and_mixes_nothing(s3_server: S3Server) -> None:
    crowd = object_crowd.run(s3_server, _url(), writers=3, readers=3, seconds=5)
    assert crowd.wrong == []
    assert crowd.counts["appends"] > 0
    assert crowd.counts["reads"] > 0

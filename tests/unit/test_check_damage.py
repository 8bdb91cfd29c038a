"""Every single byte of a small dataset is changed: a check finds it, or the data are the same.

Damaged bytes are read in a child with little memory.
"""

import pytest

import ingot
from tests.kernels import KERNELS, NATIVE_IS_BUILT, needs_native
from tests.limited import run_limited

PROGRAM = """
from contextlib import suppress
from ingot.stores import Extent, MemoryStore

def keys(store, folder=""):
    for name in store.names(folder, hidden=True):
        if name.endswith("/"):
            yield from keys(store, folder + name)
        else:
            yield folder + name

def make(format):
    store, numbers = MemoryStore(), np.arange(60) * 3
    if format == "varlen":
        ingot.ragged([b"a" * n for n in range(40)], store, packed=True, pack_bytes=200)
    elif format == "items":
        ingot.ragged([b"a" * n for n in range(12)], store, packed=False)
    elif format.startswith("table"):
        layout = {"superchunksize": 3} if "blsk" in format else {}
        ingot.table({"a": numbers, "b": numbers / 2}, store, format=format[6:], chunks=30, **layout)
    elif format == "shards":
        ingot.array(numbers, store, chunks=10, shards=30)
    elif format == "bloscpack":
        ingot.array(numbers, store, format=format, chunks=25)
    elif format == "blsk":
        ingot.array(numbers, store, format=format, chunks=20, superchunksize=4)
    else:
        name, _, codec = format.partition(" ")
        layout = {"checksum": True} if codec == "crc32c" else {"codec": codec} if codec else {}
        ingot.array(numbers, store, format=name, chunks=20, **layout)
    found = list(keys(store))
    return dict(zip(found, store.read([Extent(key) for key in found])))

def content(store):
    opened = ingot.open(store)
    if isinstance(opened, ingot.Table):
        return [opened[name][...].tolist() for name in opened.names]
    return list(opened) if isinstance(opened, ingot.Ragged) else opened[...].tolist()

format, most, repairs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sound = make(format)
step = -(-sum(map(len, sound.values())) // most)
due, missed, count = content(MemoryStore(sound)), [], 0
assert not ingot.check(MemoryStore(sound)).findings
for key, data in sound.items():
    document = key.endswith((
        ".json", "storage", "sizes", "nrows", "attributes", "s__", ".zarray", ".zattrs", "meta",
        "attrs", "__zmeta__", "__zattr__",
    ))
    for place in range(0, len(data), step):
        count += 1
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        store = MemoryStore({**sound, key: bytes(changed)})
        try:
            same = content(store) == due
        except IngotError:
            same = False
        try:
            ok = ingot.check(store).ok
        except IngotError:
            ok = False  # The marker is lost: this is no dataset.
        # No checksum covers documents: another possible value is no damage that can be seen.
        if not same and ok and not document:
            missed.append((key, place))
        if repairs and count % repairs == 0:
            with suppress(IngotError):
                ingot.repair(store, drop=True)
                after = {name: store.read([Extent(name)]) for name in keys(store)}
                assert ingot.repair(store, drop=True).done == (), (key, place)
                assert {name: store.read([Extent(name)]) for name in keys(store)} == after
assert count > 50, count
if format in ("zarr0", "zarr1", "zarr2"):
    # Blosc without a checksum: of a changed byte that decodes, no reader can know.
    chunks = {key for key in sound if key[-1].isdecimal() or key.endswith(".blosc")}
    assert len(chunks) == 3, chunks
    assert {key for key, _ in missed} <= chunks, missed
else:
    assert not missed, missed
"""

# Every registered format that holds arrays takes part. The earlier versions of Zarr have no
# checksums of their own, but some of their codecs do.
ARRAYS = [name for name, holds in ingot.formats().items() if "array" in holds]
CODECS = ["zarr1 zlib:1", "zarr2 zlib:1", "zarr2 crc32c", "zarr2 gzip:1"]
COVERED = (*ARRAYS, *CODECS, "varlen", "items", "shards")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("format", [*COVERED, "table bcolz", "table blsk"])
def test_a_changed_byte_is_found_or_changes_nothing(format, kernel):
    run_limited(PROGRAM, kernel, format, 250 if kernel == "native" else 60, 0)


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("format", [*COVERED, "table bcolz", "table blsk"])
def test_every_changed_byte_is_found_or_changes_nothing(format):
    run_limited(PROGRAM, "native", format, 5000, 0)


@pytest.mark.parametrize("format", [*COVERED, "table bcolz", "table blsk"])
def test_a_repair_of_any_changed_byte_is_done_once(format):
    run_limited(PROGRAM, "native" if NATIVE_IS_BUILT else "python", format, 60, 1)


RANDOM = """
import random
from contextlib import suppress
from ingot.stores import Extent, MemoryStore
for seed in range(int(sys.argv[1])):
    chance, store = random.Random(seed), MemoryStore()
    format = chance.choice(["zarr3", "zarr2", "bcolz", "blsk", "bloscpack"])
    ingot.array(np.arange(200), store, format=format)
    names = ["zarr.json", "c/0", ".zarray", "0", "meta/sizes", "meta/storage", "data/__0.blp",
             "meta/nrows", "data/__1__.bin", "data.blp", "__attrs__"]
    values = dict(zip(names, store.read([Extent(name) for name in names])))
    values = {name: data for name, data in values.items() if data is not None}
    for _ in range(chance.randrange(1, 4)):
        name = chance.choice(sorted(values))
        data = bytearray(values[name])
        kind = chance.randrange(4)
        if kind == 0:
            del data[chance.randrange(len(data) + 1):]
        elif kind == 1:
            data += bytes(chance.randrange(256) for _ in range(chance.randrange(40)))
        else:
            for _ in range(chance.randrange(1, 9)):
                if data:
                    data[chance.randrange(len(data))] = chance.randrange(256)
        values[name] = bytes(data)
        if kind == 3 and len(values) > 1:
            del values[name]
    damaged = MemoryStore(values)
    with suppress(IngotError):
        ingot.check(damaged)
        ingot.check(damaged, quick=True)
        ingot.repair(damaged, drop=True)
        assert ingot.repair(damaged, drop=True).done == (), (seed, format)
"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_damage_ends_in_a_report(kernel):
    run_limited(RANDOM, kernel, 150 if kernel == "native" else 40)

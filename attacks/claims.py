"""The attack `claims`: metadata that claims the absurd, read with 1 GiB of memory.

No claim may end the process, take more than ten seconds, or raise anything but an `IngotError` or
an `OSError`. A result that does not fit into memory may be a `MemoryError`: the caller asked for
it.
"""

import copy
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from attacks.campaign import GIB, Case, attack
from attacks.datasets import STORES, files, samples
from attacks.programs import IMPORTS
from ingot.formats.bloscpack import metadata, offsets
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import MAGIC
from ingot.stores import MemoryStore

__all__ = ["claims"]

HEADER = struct.Struct("<4sBBBBiiqq")
NUMBERS = (0, -1, 1, 2, 7, 255, 2**16, 2**28, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63)
OTHERS = (
    2**64,
    10**40,
    -(2**63),
    1.5,
    float("nan"),
    float("inf"),
    1e300,
    "",
    "NaN",
    "0x" + "f" * 40,
    "a" * 100_000,
    "\0",
    "\ud800",
    None,
    True,
    [],
    {},
    [[]],
    [[[[[[0]]]]]],
    {"": {}},
    [1] * 5000,
)
DTYPES = (
    "|V2147483647", "|V0", "|S2147483647", "<U536870911", "|S0", "<U0", "|O", "<i3", ">i16", "<M8",
    "<M8[7Y]", "<M8[2147483647as]", "<m8[generic]", "|b9", "i4,i4", "float8", "r2147483640", "r7",
    [["a", "<i4"], ["a", "<i4"]], [["a", "<i4", [2147483647, 2147483647]]], [["", "|V1"]],
    [["a", [["b", [["c", "<i4"]]]]]], [[f"x{i}", "|u1"] for i in range(3000)],
)  # fmt: skip

ZARR3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "uint8",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": [{"name": "bytes"}],
    "attributes": {},
}
ZARR2 = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [4],
    "dtype": "|u1",
    "compressor": None,
    "filters": None,
    "fill_value": 0,
    "order": "C",
}


def zarr3(**changes: Any) -> dict[str, Any]:
    """Return a document of Zarr 3 with changes; chunks stands for the chunk grid."""
    document = copy.deepcopy(ZARR3)
    if "chunks" in changes:
        grid: Any = document["chunk_grid"]
        grid["configuration"]["chunk_shape"] = changes.pop("chunks")
    return {**document, **changes}


def sharded(shape: list[int], shard: list[int], inner: list[int]) -> dict[str, Any]:
    """Return a document of a sharded array."""
    index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    codec = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": inner,
            "codecs": [{"name": "bytes"}],
            "index_codecs": index,
        },
    }
    return zarr3(shape=shape, chunks=shard, codecs=[codec])


def nested(depth: int) -> Any:
    """Return a list in a list in a list."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def by_hand() -> list[tuple[str, str, dict[str, Any], str]]:
    """Return claims made by hand: a title, the file that makes it, its document, an operation."""
    found = []
    shapes = [
        ([2**28], [1]),
        ([2**40], [1]),
        ([2**40], [2**20]),
        ([2**62], [1]),
        ([2**62], [2**62]),
        ([2**20, 2**20], [1, 1]),
        ([2**31, 2**31, 2**31], [1, 1, 1]),
        ([1] * 32, [1] * 32),
        ([2**33, 0], [1, 1]),
        ([0], [1]),
        ([2**28], [2**31 - 20]),
        ([3], [2**31 - 20]),
    ]
    operations = ("h[...]", "h[0:2]", "h[...] = 0", "h.sum()", "h.min()", "h.explain(...)")
    operations += ("h.append(h[:1])", "h.resize(h.shape)", "h.attrs.update(x=1)", "h.stored_bytes")
    operations += ("h[:: 2**20]", "next(iter(h.blocks()), None)", "h.any()", "repr(h), str(h.info)")
    operations += ("h.resize(tuple(2 * n for n in h.shape))", "h.resize((0,) * h.ndim)", "h[-1:]=1")
    for shape, chunks in shapes:
        for operation in operations:
            row = int(np.prod([-(-a // b) for a, b in zip(shape[1:], chunks[1:], strict=True)]))
            if row > 1000 and operation in ("h[0:2]", "h.append(h[:1])", "h[-1:]=1"):
                # One row has so many chunks that the time is what was asked for.
                continue
            if shape[0] >= 2**62 and "2 * n" in operation:
                # A length of 2**63 is a wrong argument.
                continue
            title = f"{shape[0]:.2g}… items in chunks of {chunks[0]:.2g}, {operation}"
            if len(shape) > 1:
                title = f"{len(shape)} axes: {title}"
            found.append(
                (f"zarr3: {title}", "zarr.json", zarr3(shape=shape, chunks=chunks), operation)
            )
            document = {**ZARR2, "shape": shape, "chunks": chunks}
            found.append((f"zarr2: {title}", ".zarray", document, operation))
    for operation in operations:
        document = sharded([2**40], [2**20], [1])
        found.append(
            (f"zarr3: shards of 2**20 chunks, {operation}", "zarr.json", document, operation)
        )
    for dtype in DTYPES:
        name = str(dtype)[:40]
        for chunks in (1, 4):
            document = {**ZARR2, "dtype": dtype, "chunks": [chunks], "fill_value": None}
            for operation in ("h[...]", "repr(h), str(h.info)", "h[...] = h[...]"):
                title = f"zarr2: type {name}, {operation}"
                found.append((title, ".zarray", document, operation))
        found.append((f"zarr3: type {name}", "zarr.json", zarr3(data_type=dtype), "h[...]"))
    for depth in (20, 59, 60, 61, 62, 63, 64, 65, 1000, 100_000):
        # json.dumps itself stops at about a thousand levels.
        if depth < 900:
            attributes = {"x": nested(depth)}
            found.append(
                (
                    f"zarr3: attributes {depth} deep",
                    "zarr.json",
                    zarr3(attributes=attributes),
                    "h[...]",
                )
            )
    for depth in (30, 60, 61, 62, 63, 64, 65, 66):
        store = f"""
try:
    h.attrs["x"] = {nested(depth)!r}
except ingot.errors.IngotError:
    pass
dict(ingot.open(place).attrs)"""
        found.append((f"zarr3: an attribute {depth} deep is set", "zarr.json", zarr3(), store))
        found.append((f"zarr2: an attribute {depth} deep is set", ".zarray", ZARR2, store))
    return found


BY_HAND = by_hand()

READ = """
repr(h), str(h.info), h.attrs
if isinstance(h, ingot.Group):
    [h[name][...] for name in h if isinstance(h[name], ingot.Array)]
    h.tree()
elif isinstance(h, ingot.Table):
    h.read(rows=slice(0, 3)); h.read(); len(h); h.where("a > 1").count()
else:
    h[:1] if h.ndim else h[...]
    h.explain(...)
    h[...]
    h.sum() if h.dtype.kind in "iuf" else None
"""
WRITE = """
if isinstance(h, ingot.Array) and h.ndim:
    h[-1:] = h[:1][0] if len(h) else 0
    h.append(h[:1])
    # In between, what the caller asks for is stored: tens of thousands of files.
    if not 2**17 < h.size < 2**32:
        h[...] = h[:1][0] if len(h) else 0
h.attrs["x"] = 1
"""


@attack("claims", memory=GIB)
def claims(case: Case) -> None:
    """Absurd metadata, by hand and by a grammar, in a child with 1 GiB of memory."""
    # Numbers 0, 2, 4 … are by hand until all are done, so that both kinds come early.
    half, odd = divmod(case.number, 2)
    if not odd and half < len(BY_HAND):
        title, name, document, operation = BY_HAND[(half * 101 + case.seed) % len(BY_HAND)]
        content = {name: json.dumps(document).encode()}
        attempt(case, content, operation, title, name)
        return
    content, title, name = mutated(case)
    operation = READ if case.random.random() < 0.6 else WRITE
    attempt(case, content, operation, title, name)


def mutated(case: Case) -> tuple[dict[str, bytes], str, str]:
    """Return the files of a dataset with changed metadata, and what was changed."""
    rng = case.random
    sample = rng.choice([each for each in samples() if each.name != "empty"])
    folder = case.folder / "valid"
    folder.mkdir()
    space = {"ingot": ingot, "np": np, "place": str(folder / "data")}
    exec(sample.source, space)
    content = {
        name: value for name, value in files(folder / "data").items() if not name.endswith(".lock")
    }
    documents = {}
    for name, value in content.items():
        try:
            documents[name] = json.loads(value)
        except ValueError:
            continue
    if "" in content and content[""].startswith(MAGIC) and rng.random() < 0.8:
        changed, what = claimed(rng, content[""])
        return {"": changed}, f"{sample.title}: {what}", ""
    if not documents:
        # Zarr 0 has pickled metadata: only its bytes can be changed.
        name = rng.choice(sorted(content))
        value = bytearray(content[name])
        for _ in range(rng.randint(1, 4)):
            value[rng.randrange(len(value))] = rng.randrange(256)
        return {**content, name: bytes(value)}, f"{sample.title}: bytes of {name}", name
    name = rng.choice(sorted(documents))
    changed = documents[name]
    fields = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        changed, changed_field = change(rng, changed)
        fields.append(changed_field)
    text = json.dumps(changed)
    if rng.random() < 0.05:
        text = text.replace("{", '{"shape": 3, ', 1)
    if rng.random() < 0.05:
        text = text[: rng.randrange(len(text))]
    title = f"{sample.title}: {name}, {' and '.join(sorted(set(fields)))}"
    return {**content, name: text.encode("utf-8", "surrogatepass")}, title, name


def claimed(rng: Any, data: bytes) -> tuple[bytes, str]:
    """Return a Bloscpack file with another header or other metadata, and what was changed."""
    if rng.random() < 0.5:
        values = list(HEADER.unpack_from(data))
        place = rng.randrange(1, len(values))
        low, high = (0, 255) if place < 5 else (-(2**31), 2**31 - 1)
        low, high = (low, high) if place < 7 else (-(2**63), 2**63 - 1)
        number = rng.choice([each for each in NUMBERS if type(each) is int] + [values[place] + 1])
        values[place] = max(low, min(number, high))
        return HEADER.pack(*values) + data[HEADER.size :], f"field {place} of the header"
    file = BloscpackFile.read(MemoryStore({"a": data}), "a")
    value, field = change(rng, file.value)
    try:
        front = file.header.pack() + metadata.pack(value)
    except ingot.errors.IngotError:
        return data, "nothing"
    begin = len(front) + file.header.table_bytes
    table = offsets.pack(file.row.start + (begin - file.begin), file.header.max_app_chunks)
    return front + table + data[file.begin :], f"metadata, {field}"


def change(rng: Any, document: Any) -> tuple[Any, str]:
    """Return the document with one value replaced, and the field that was replaced."""
    paths = list(walk(document, ()))
    path = rng.choice(paths)
    value = rng.choice(NUMBERS) if rng.random() < 0.6 else rng.choice((*OTHERS, *DTYPES))
    if not path:
        return value, "the document"
    document = copy.deepcopy(document)
    target = document
    for step in path[:-1]:
        target = target[step]
    if rng.random() < 0.1 and isinstance(target, dict):
        del target[path[-1]]
    elif rng.random() < 0.1 and isinstance(target, list):
        target *= rng.choice((2, 40))
    else:
        target[path[-1]] = value
    return document, ".".join(str(step) for step in path if isinstance(step, str))


def walk(value: Any, path: tuple[Any, ...]) -> Any:
    """Yield the way to every value of a document."""
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from walk(value[name], (*path, name))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from walk(value[number], (*path, number))


def attempt(case: Case, content: dict[str, bytes], operation: str, title: str, name: str) -> None:
    """Open a dataset that makes a claim, and use it."""
    folder = case.folder / "claim"
    folder.mkdir()
    place = folder / "data"
    store(place, content)
    case.announce(source(content, operation), title)
    space = {"ingot": ingot, "np": np, "place": str(place)}
    try:
        exec('h = ingot.open(place, "r+")', space)
        exec(operation, space)
        case.count("answered")
        return
    except (ingot.errors.IngotError, OSError):
        case.count("refused")
        return
    except MemoryError as error:
        handle = space.get("h")
        # A result that the caller asked for may be too large for the process.
        asked = "[..." in operation.replace("h[...] = 0", "") or "[::" in operation
        if (asked and getattr(handle, "nbytes", 0) > GIB // 4) or huge_chunks(handle):
            case.count("too large for the process")
            return
        problem: Exception = error
    except ValueError as error:
        if "which has no identity" in str(error):
            # NumPy's own error: there is no least item of nothing.
            case.count("refused")
            return
        problem = error
    except Exception as error:
        problem = error
    word = type(problem).__name__
    case.find(
        "error",
        f"{word}: {title}",
        expected="data, an IngotError or an OSError",
        happened=f"{word}: {str(problem)[:300]}",
        program=source(content, operation),
    )


def huge_chunks(handle: Any) -> bool:
    """Return whether one chunk alone, which is stored as a whole, is large for the process."""
    chunks = getattr(handle, "chunks", None)
    if not isinstance(handle, ingot.Array) or not chunks:
        return False
    return math.prod(chunks) * handle.dtype.itemsize > GIB // 4


def store(place: Path, content: dict[str, bytes]) -> None:
    """Write the files of a dataset."""
    for name, value in content.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)


def source(content: dict[str, bytes], operation: str) -> str:
    """Return a program that makes the files, limits its memory, and does the operation."""
    shown = ",\n".join(f"    {name!r}: {value!r}" for name, value in sorted(content.items()))
    return f"""import resource
{IMPORTS}
folder = tempfile.mkdtemp()
place = {STORES["folder"]}
content = {{
{shown},
}}
for name, value in content.items():
    path = os.path.join(place, name) if name else place
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(value)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
h = ingot.open(place, "r+")
{operation}
"""

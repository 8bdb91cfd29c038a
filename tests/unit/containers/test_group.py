"""Groups: members, changes as one commit each, copies of metadata, and wholes and their parts."""

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers.resolve import find_enclosing
from ingot.errors import (
    ExistsError,
    FormatError,
    IngotError,
    MemberError,
    ReadOnlyError,
    UnsafeError,
    UnsupportedError,
)
from ingot.formats.format import ConsolidatedMetadata, GroupNode
from ingot.formats.zarr import v2_consolidated
from ingot.formats.zarr.v2_groups import Zarr2GroupFormat
from ingot.formats.zarr.v3_groups import Zarr3GroupFormat
from ingot.stores import Commit, Extent, Feature, LocalStore, MemoryStore, Store, ZipStore
from ingot.testing.counting import CountingStore
from tests.storage import Place, content, put

FORMAT = "zarr2"
"""The format of the groups; tests in a `place` run once for each."""


@pytest.fixture(params=["zarr2", "zarr3"])
def each_format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FORMAT", request.param)


@pytest.fixture(params=["memory", "local", "zip"])
def place(request: pytest.FixtureRequest, tmp_path: Path, each_format: None) -> Place:
    if request.param == "memory":
        return MemoryStore()
    return tmp_path / ("root" if request.param == "local" else "root.zip")


def stored(place: Place) -> dict[str, bytes]:
    if isinstance(place, Path) and place.suffix == ".zip":
        return content(ZipStore(place))
    return content(place)


def group_at(place: Place, mode: Any = "r+") -> ingot.Group:
    group = ingot.open(place, mode)
    assert isinstance(group, ingot.Group)
    return group


def sample(place: Place) -> ingot.Group:
    root = ingot.group(place, attrs={"title": "sample"}, format=FORMAT)
    root.array("a", np.arange(12).reshape(3, 4), chunks=(2, 2), attrs={"units": "m"})
    root.array("b/c", [1.5, 2.5], codec="zlib:1")
    root.group("b/d", attrs={"empty": True})
    return root


# Members ------------------------------------------------------------------------------------------


def test_a_level_is_read_by_one_batch(each_format: None) -> None:
    store = CountingStore()
    sample(store)
    for number in range(30):
        ingot.open(store, "r+").array(f"b/d/{number}", [number])  # type: ignore[union-attr]
    store.reset()
    root = group_at(store)
    assert store.listings == 0
    opening = store.batches
    assert opening <= 3
    # Reading a member reads its documents and its chunk, whatever else the group holds.
    store.reset()
    assert root["b/d/7"][0] == 7
    assert (store.batches, store.listings) == (2, 0)
    store.reset()
    assert (list(root), len(root["b/d"])) == (["a", "b"], 30)
    assert (store.batches, store.listings) == (3, 2)
    store.reset()
    assert len(repr(root.tree()).splitlines()) == 35
    assert (store.batches, store.listings) == (3, 3)


def test_members_take_the_options_of_their_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = LocalStore.writing

    def writing(self: LocalStore, *, durability: Any = "full", **more: Any) -> Any:
        asked.append(durability)
        return real(self, durability=durability, **more)

    monkeypatch.setattr(LocalStore, "writing", writing)
    root = ingot.group(tmp_path / "root", options=ingot.Options(durability="process"))
    root.array("a", [1, 2])
    root.create_array("b/c", shape=3, dtype="i4")[:] = 1
    assert set(asked) == {"process"}
    root.array("d", [1], options=ingot.Options())
    assert asked[-1] == "full"


def test_a_group_is_a_mapping_of_its_members(place: Place) -> None:
    sample(place)
    root = group_at(place, "r")
    assert list(root) == ["a", "b"]
    assert len(root) == 2
    assert dict(root.attrs) == {"title": "sample"}
    assert isinstance(root["a"], ingot.Array)
    assert isinstance(root["b"], ingot.Group)
    assert root["a"][1].tolist() == [4, 5, 6, 7]
    assert root["b/c"][...].tolist() == root["b"]["c"][...].tolist() == [1.5, 2.5]
    assert dict(root["/b//d/"].attrs) == {"empty": True}
    assert [name for name, _ in root["b"].items()] == ["c", "d"]
    assert root.get("nothing", 5) == 5


@pytest.mark.parametrize("name", ["nothing", "a/b", "b/e", "b/c/d", "", "/", "b/c/0"])
def test_what_is_no_member(name: str, place: Place) -> None:
    root = sample(place)
    assert name not in root
    with pytest.raises(MemberError, match="no member"):
        root[name]
    with pytest.raises(KeyError):
        del root[name]


def test_names_are_text_and_stay_inside(place: Place) -> None:
    root = sample(place)
    assert 5 not in root
    with pytest.raises(TypeError, match="text"):
        root[5]  # type: ignore[index]
    for name in ("..", "a/../b", "b/.", "c:/x", "a\0b"):
        with pytest.raises(UnsafeError):
            root[name]
        with pytest.raises(ValueError, match=r"name|key"):
            root.group(name)
    reserved = {"zarr2": (".zgroup", "b/.zattrs/c", ".zmetadata"), "zarr3": ("zarr.json", "__x")}
    for name in reserved[FORMAT]:
        with pytest.raises(ValueError, match="name"):
            root.create_array(name, shape=1, dtype="i4")


def test_members_of_other_kinds_are_left_out(tmp_path: Path) -> None:
    sample(tmp_path / "root")
    (tmp_path / "root" / "notes").mkdir()
    (tmp_path / "root" / "notes" / "readme").write_text("mine")
    (tmp_path / "root" / "loose").write_text("mine")
    assert list(group_at(tmp_path / "root")) == ["a", "b"]


def test_creating_makes_the_groups_above(place: Place) -> None:
    root = ingot.group(place, format=FORMAT)
    root.create_array("x/y/z", shape=3, dtype="i4", fill=7)
    assert isinstance(root["x/y"], ingot.Group)
    assert root["x"]["y"]["z"][...].tolist() == [7, 7, 7]
    with pytest.raises(ExistsError, match="'x/y/z' is an array"):
        root.group("x/y/z/below")
    with pytest.raises(ExistsError, match="is an array"):
        root.array("x/y/z/below/more", [1])


def test_what_is_there_is_not_replaced(place: Place) -> None:
    root = sample(place)
    before = stored(place)
    for create in (
        lambda: root.group("a"),
        lambda: root.group("b"),
        lambda: root.array("a", [1]),
        lambda: root.create_array("b", shape=1, dtype="i4"),
        lambda: root.array("b", [1], overwrite=True),
    ):
        with pytest.raises(ExistsError):
            create()
    assert stored(place) == before


def test_an_array_is_replaced_when_that_is_wanted(place: Place) -> None:
    root = sample(place)
    root.array("a", [1, 2, 3], overwrite=True)
    assert root["a"][...].tolist() == [1, 2, 3]
    assert dict(root["a"].attrs) == {}
    keys = {"zarr2": {"a/.zarray", "a/0"}, "zarr3": {"a/zarr.json", "a/c/0"}}
    assert {key for key in stored(place) if key.startswith("a/")} == keys[FORMAT]


def test_members_can_be_changed(place: Place) -> None:
    root = sample(place)
    member = root["a"]
    member[0] = -1
    member.append(np.full((1, 4), 9))
    member.attrs["units"] = "km"
    again = group_at(place)["a"]
    assert again[...].tolist() == [[-1] * 4, [4, 5, 6, 7], [8, 9, 10, 11], [9] * 4]
    assert dict(again.attrs) == {"units": "km"}


@pytest.mark.parametrize("name", ["a", "b", "b/c", "b/d"])
def test_deleting_leaves_nothing(place: Place, name: str) -> None:
    root = sample(place)
    before = stored(place)
    del root[name]
    assert name not in root
    assert {key for key in before if not key.startswith(f"{name}/")} == stored(place).keys()
    root.array(name, [5])
    assert group_at(place)[name][...].tolist() == [5]


def test_files_of_others_survive(tmp_path: Path) -> None:
    root = sample(tmp_path / "root")
    (tmp_path / "root" / "b" / "readme").write_text("mine")
    del root["b"]
    assert [path.name for path in (tmp_path / "root" / "b").iterdir() if path.is_file()] == [
        "readme"
    ]


def test_chunks_that_a_crash_left_do_not_come_back(place: Place) -> None:
    root = sample(place)
    zeros = np.zeros((2, 2), "i8")
    chunk = {key: data for key, data in stored(place).items() if key in ("a/0.0", "a/c/0/0")}
    del root["a"]
    if isinstance(place, Path) and place.suffix == ".zip":
        ZipStore(place, writable=True).apply(Commit(publish=tuple(_puts(chunk))))
    else:
        put(place, chunk)
    made = root.create_array("a", shape=(2, 2), chunks=(2, 2), dtype="i8")
    assert made[...].tolist() == zeros.tolist()


def _puts(values: dict[str, bytes]) -> list[Any]:
    from ingot.stores import Put

    return [Put(key, data) for key, data in values.items()]


def test_attributes_are_stored(place: Place) -> None:
    root = sample(place)
    root.attrs.update(n=np.int64(5), when="now")
    del root.attrs["title"]
    assert dict(group_at(place).attrs) == {"n": 5, "when": "now"}
    with pytest.raises(FormatError, match="JSON"):
        root.attrs["data"] = b"bytes"


def test_reading_changes_nothing(place: Place) -> None:
    sample(place)
    before = stored(place)
    root = group_at(place, "r")
    for change in (
        lambda: root.group("x"),
        lambda: root.array("x", [1]),
        lambda: root.attrs.update(n=1),
        lambda: root.__delitem__("a"),
        lambda: root.consolidate(),
        lambda: root["a"].attrs.update(n=1),
        lambda: root["b"].group("x"),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    assert stored(place) == before


def test_other_handles_see_changes(place: Place) -> None:
    root = sample(place)
    other = group_at(place)
    assert list(other) == ["a", "b"]
    root.array("z", [1])
    assert list(other) == ["a", "b", "z"]
    other.attrs["n"] = 1
    assert root.attrs["n"] == 1
    with root.snapshot():
        assert list(root) == ["a", "b", "z"]
    root.refresh()
    root.flush()


def test_a_closed_group_raises(place: Place) -> None:
    with sample(place) as root:
        member = root["a"]
    for use in (lambda: list(root), lambda: root.attrs["title"], root.flush):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert repr(root) == "<ingot.Group, closed>"
    assert member[0].tolist() == [0, 1, 2, 3]


def test_groups_are_pickled_by_their_place(tmp_path: Path) -> None:
    root = sample(tmp_path / "root")
    inner = pickle.loads(pickle.dumps(root["b"]))
    assert list(inner) == ["c", "d"]
    assert inner.path == str(tmp_path / "root" / "b")
    member = pickle.loads(pickle.dumps(root["b/c"]))
    assert member[...].tolist() == [1.5, 2.5]
    inner.array("e", [1])
    assert "b/e" in root


def test_a_group_that_becomes_an_array_is_noticed(place: Place) -> None:
    root = sample(place)
    inner = root["b"]
    del root["b"]
    root.array("b", [1])
    with pytest.raises(FormatError, match="no longer a group"):
        list(inner)


# Displays -----------------------------------------------------------------------------------------


def test_a_tree() -> None:
    root = sample(MemoryStore())
    assert repr(root.tree()) == textwrap.dedent("""\
        /
        ├── a (3, 4) int64
        └── b/
            ├── c (2,) float64
            └── d/""")
    assert repr(root.tree(depth=0)) == "/"
    assert repr(root["b"].tree()).splitlines()[0] == "/b"


def test_a_tree_shows_no_more_than_helps() -> None:
    store = MemoryStore({".zgroup": b'{"zarr_format": 2}'})
    names = {f"m{number:04}/.zgroup": b'{"zarr_format": 2}' for number in range(1500)}
    put(store, names)
    lines = repr(group_at(store).tree()).splitlines()
    assert len(lines) == 1001
    assert lines[-1] == "└── …"


def test_a_deep_tree_does_not_exhaust_the_stack() -> None:
    path = "/".join("n" * 350)
    keys = [path[:length] for length in range(1, len(path) + 1, 2)]
    store = MemoryStore({f"{key}/.zgroup": b'{"zarr_format": 2}' for key in keys})
    put(store, {".zgroup": b'{"zarr_format": 2}'})
    root = group_at(store)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        assert repr(root.tree()).splitlines()[-1].endswith("└── …")
        root.consolidate()
        assert root.consolidated
        del root["n"]
    finally:
        sys.setrecursionlimit(before)
    assert len(root) == 0


def test_info_and_html() -> None:
    root = ingot.group(attrs={"<b>": 1}, format="zarr2")
    root.array("<script>", [1])
    assert repr(root) == "<ingot.Group of 1 member, zarr2 in memory, r+>"
    assert repr(root.info).splitlines()[0] == "ingot.Group"
    html = root._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;" in html
    for tag in ("table", "ul", "li", "details", "summary", "tr", "td"):
        assert html.count(f"<{tag}>") + html.count(f"<{tag} ") == html.count(f"</{tag}>")


# Copies of metadata -------------------------------------------------------------------------------


def test_copies_are_those_of_all_documents(place: Place) -> None:
    root = sample(place)
    assert root.consolidated is None
    root.consolidate()
    assert root.consolidated is True
    found = stored(place)
    if FORMAT == "zarr3":
        whole = json.loads(found["zarr.json"])
        copied = whole.pop("consolidated_metadata")
        assert copied == {
            "kind": "inline",
            "must_understand": False,
            "metadata": {
                name: json.loads(found[f"{name}/zarr.json"]) for name in ("a", "b", "b/c", "b/d")
            },
        }
        return
    documents = {
        key: json.loads(data)
        for key, data in found.items()
        if key.rpartition("/")[2] in (".zarray", ".zgroup", ".zattrs")
    }
    assert json.loads(found[".zmetadata"]) == {
        "metadata": documents,
        "zarr_consolidated_format": 1,
    }


CHANGES: dict[str, Callable[[ingot.Group], object]] = {
    "attribute of the group": lambda root: root.attrs.update(n=1),
    "attribute of a member": lambda root: root["a"].attrs.update(n=1),
    "attribute of a group inside": lambda root: root["b"].attrs.update(n=[1.5, None]),
    "length": lambda root: root["a"].append(np.zeros((1, 4))),
    "new array": lambda root: root.array("x/y", [1], attrs={"n": 1}),
    "new group": lambda root: root.group("b/e/f"),
    "replaced": lambda root: root.array("a", [1], overwrite=True),
    "deleted array": lambda root: root.__delitem__("b/c"),
    "deleted group": lambda root: root.__delitem__("b"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_copies_follow_every_change(place: Place, name: str) -> None:
    root = sample(place)
    root.consolidate()
    root["b"].consolidate()
    CHANGES[name](root)
    assert group_at(place).consolidated is True
    if "b" in root:
        assert root["b"].consolidated is True


def test_a_change_and_its_copies_are_one_commit() -> None:
    commits: list[Commit] = []

    class Watched(MemoryStore):
        def apply(self, commit: Commit, **more: Any) -> None:
            commits.append(commit)
            super().apply(commit, **more)

    store = Watched()
    root = sample(store)
    root.consolidate()
    commits.clear()
    root["a"].append(np.zeros((1, 4)))
    [commit] = commits
    assert {edit.key for edit in commit.publish} == {"a/.zarray", ".zmetadata"}


def test_stale_copies_are_found_and_the_documents_win(place: Place) -> None:
    root = sample(place)
    root.consolidate()
    key = {"zarr2": "a/.zarray", "zarr3": "a/zarr.json"}[FORMAT]
    changed = json.loads(stored(place)[key]) | {"shape": [1, 4]}
    store: Any = place
    if isinstance(place, Path):
        store = ZipStore(place, writable=True) if place.suffix else LocalStore(place, writable=True)
    store.apply(Commit(publish=tuple(_puts({key: json.dumps(changed).encode()}))))
    again = group_at(place)
    assert again.consolidated is False
    assert again["a"].shape == (1, 4)
    stale = {"zarr2": "a/.zarray", "zarr3": "a"}[FORMAT]
    hierarchy = Zarr2GroupFormat() if FORMAT == "zarr2" else Zarr3GroupFormat()
    assert hierarchy.compare_consolidated(store, "") == ConsolidatedMetadata((stale,))
    again.consolidate()
    assert again.consolidated is True


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"zarr_consolidated_format": 2, "metadata": {}}',
        b'{"zarr_consolidated_format": 1, "metadata": []}',
        b'{"zarr_consolidated_format": 1, "metadata": {"a/.zarray": 5}}',
        b"[" * 100_000,
    ],
)
def test_copies_that_cannot_be_read_are_none(data: bytes) -> None:
    store = MemoryStore()
    root = sample(store)
    put(store, {".zmetadata": data})
    assert root.consolidated is None
    root.attrs["n"] = 1
    assert store.read([Extent(".zmetadata")]) == [data]


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_without_a_listing_copies_name_the_members(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FORMAT", name)
    hierarchy = Zarr2GroupFormat() if name == "zarr2" else Zarr3GroupFormat()

    class Unlisted(MemoryStore):
        features = Feature.RANGES

        def names(self, *arguments: Any, **more: Any) -> Any:
            raise UnsupportedError("no listing")

    whole = MemoryStore()
    sample(whole).consolidate()
    if name == "zarr2":
        put(whole, {".zmetadata": _with(whole, "ghost/.zgroup", {"zarr_format": 2})})
    root = hierarchy.open(Unlisted(content(whole)))
    assert isinstance(root, GroupNode)
    # What only the copy has is not there.
    assert hierarchy.children(Unlisted(content(whole)), "") == ("a", "b")
    assert hierarchy.children(Unlisted(content(whole)), "b") == ("c", "d")
    [below] = hierarchy.members(Unlisted(content(whole)), ["b"])
    assert list(below.nodes) == ["c", "d"]


def _with(store: Store, key: str, value: Any) -> bytes:
    [data] = store.read([Extent(".zmetadata")])
    assert data is not None
    return v2_consolidated.pack(v2_consolidated.parse(data) | {key: value})


# Wholes and parts ---------------------------------------------------------------------------------


def test_the_whole_of_a_part_is_the_outermost_group(tmp_path: Path) -> None:
    root = sample(tmp_path / "root")
    root.array("b/e/f", [1])
    for inner in ("a", "b", "b/c", "b/e/f", "b/not yet"):
        part = find_enclosing(str(tmp_path / "root" / inner))
        assert part is not None
        assert (part.root, part.inner) == (str(tmp_path / "root"), inner)
    assert find_enclosing(str(tmp_path / "root")) is None
    assert find_enclosing(str(tmp_path)) is None
    assert find_enclosing("/") is None


def test_a_part_ends_where_a_folder_is_no_group(tmp_path: Path) -> None:
    sample(tmp_path / "root")
    (tmp_path / "root" / "plain").mkdir()
    (tmp_path / "root" / "plain" / "readme").write_text("mine")
    ingot.array([1], tmp_path / "root" / "plain" / "x", format="zarr2")
    assert find_enclosing(str(tmp_path / "root" / "plain" / "x")) is None
    (tmp_path / "root" / "plain" / ".zgroup").mkdir()
    assert find_enclosing(str(tmp_path / "root" / "plain" / "x")) is None


def test_a_link_leads_to_the_whole_of_its_target(tmp_path: Path) -> None:
    sample(tmp_path / "root")
    (tmp_path / "link").symlink_to(tmp_path / "root" / "b" / "c")
    part = find_enclosing(str(tmp_path / "link"))
    assert part is not None
    assert part.inner == "b/c"
    assert ingot.open(tmp_path / "link")[...].tolist() == [1.5, 2.5]


def test_a_part_has_no_lock_of_its_own(tmp_path: Path) -> None:
    sample(tmp_path / "root")
    member = ingot.open(tmp_path / "root" / "b" / "c", "r+")
    member[0] = 9
    member.append([3.5])
    assert member.path == str(tmp_path / "root" / "b" / "c")
    inner = ingot.open(tmp_path / "root" / "b", "r+")
    inner.array("x", [1])
    ingot.create(tmp_path / "root" / "b" / "y", shape=2, dtype="i4")
    ingot.group(tmp_path / "root" / "g" / "h")
    found = [path.relative_to(tmp_path) for path in tmp_path.rglob(".lock")]
    assert found == [Path("root/.lock")]
    assert ingot.open(tmp_path / "root")["b"].tree().below[0].name == "c"
    assert set(group_at(tmp_path / "root")) == {"a", "b", "g"}
    assert ingot.open(tmp_path / "root" / "b" / "c")[...].tolist() == [9, 2.5, 3.5]


def test_parts_wait_for_the_writer_of_the_whole(tmp_path: Path) -> None:
    sample(tmp_path / "root")
    whole = LocalStore(tmp_path / "root", writable=True)
    member = ingot.open(tmp_path / "root" / "b" / "c", "r+")
    program = (
        "import sys, functools, ingot; from ingot.stores import LocalStore;"
        "LocalStore.__init__ = functools.partialmethod(LocalStore.__init__, wait=0.1);"
        "ingot.open(sys.argv[1], 'r+')[0] = 5"
    )
    with whole.writing() as turn:
        path = str(tmp_path / "root" / "b" / "c")
        found = subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, check=False
        )
        assert "LockedError" in found.stderr, found.stderr
        turn.commit(Commit())
    member[0] = 7
    assert member[0] == 7


@pytest.mark.usefixtures("_steps_in_python")
def test_a_commit_of_the_whole_that_is_half_done_is_seen_in_a_part(tmp_path: Path) -> None:
    outcomes = []
    for number in range(1, 9):
        root = sample(tmp_path / str(number))
        process = multiprocessing.get_context("fork").Process(
            target=_die_at_rename, args=(tmp_path / str(number), number)
        )
        process.start()
        process.join()
        seen = "n" in root
        try:
            found = ingot.open(tmp_path / str(number) / "n" / "m")[...].tolist()
        except IngotError:
            found = None
        assert found == ([1, 2] if seen else None)
        outcomes.append((process.exitcode, seen))
    # Before the commit was decided, and after, with work left to do.
    assert {(9, False), (9, True)} <= set(outcomes)


def _die_at_rename(path: Path, number: int) -> None:
    real, count = os.rename, 0

    def rename(*arguments: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            os._exit(9)
        real(*arguments, **more)

    os.rename = rename  # type: ignore[assignment]
    ingot.open(path, "r+").array("n/m", [1, 2], attrs={"x": 1})


def test_a_store_is_a_whole_by_itself(tmp_path: Path) -> None:
    sample(tmp_path / "root")
    array = ingot.open(LocalStore(tmp_path / "root" / "a", writable=True), "r+")
    array[0] = 1
    assert (tmp_path / "root" / "a" / ".lock").exists()


def test_other_formats_may_lie_in_a_group(tmp_path: Path) -> None:
    sample(tmp_path / "root")
    ingot.array([1, 2], tmp_path / "root" / "old", format="zarr0")
    assert ingot.open(tmp_path / "root" / "old").format == "zarr0"
    assert (tmp_path / "root" / "old" / ".lock").exists()
    assert list(group_at(tmp_path / "root")) == ["a", "b"]


# Creating -----------------------------------------------------------------------------------------


def test_a_group_is_replaced_when_that_is_wanted(place: Place) -> None:
    sample(place)
    with pytest.raises(ExistsError):
        ingot.group(place, format=FORMAT)
    with pytest.raises(ExistsError, match="only arrays"):
        ingot.array([1], place, overwrite=True, format=FORMAT)
    root = ingot.group(place, overwrite=True, attrs={"new": 1}, format=FORMAT)
    assert list(root) == []
    keys = {"zarr2": {".zgroup", ".zattrs"}, "zarr3": {"zarr.json"}}
    assert set(stored(place)) == keys[FORMAT]


def test_formats_without_groups(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="zarr0 holds no groups"):
        ingot.group(tmp_path / "x", format="zarr0")
    with pytest.raises(UnsupportedError, match="holds no zarr0"):
        ingot.group(format="zarr2").array("x", [1], format="zarr0")
    with pytest.raises(TypeError, match="no setting"):
        ingot.group(format="zarr2").array("x", [1], colour="red")
    with pytest.raises(FormatError, match="JSON"):
        ingot.group(attrs={"x": object()})


@pytest.mark.parametrize("name", [".g-", ".g-1"])
def test_members_may_have_names_like_those_of_staged_values(name: str, place: Place) -> None:
    root = ingot.group(place, format=FORMAT)
    root.group(name).array("a", [1, 2])
    root.array(f"{name}.b", [3])
    found = group_at(place, "r")
    assert set(found) == {name, f"{name}.b"}
    np.testing.assert_array_equal(found[f"{name}/a"], [1, 2])
    del root[name]
    assert list(found) == [f"{name}.b"]


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_reads_our_groups(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr(sys.modules[__name__], "FORMAT", f"zarr{version}")
    root = sample(tmp_path / "root")
    theirs = zarr.open_group(str(tmp_path / "root"), mode="r", zarr_format=version)
    assert sorted(theirs) == ["a", "b"]
    assert theirs["b/c"][...].tolist() == [1.5, 2.5]
    assert dict(theirs.attrs) == {"title": "sample"}
    root.consolidate()
    copied = zarr.open_consolidated(str(tmp_path / "root"), zarr_format=version)
    assert sorted(copied) == ["a", "b"]
    assert copied["a"][...].tolist() == np.arange(12).reshape(3, 4).tolist()


@pytest.mark.parametrize("version", [2, 3])
def test_we_read_groups_and_copies_of_zarr(tmp_path: Path, version: int) -> None:
    zarr = pytest.importorskip("zarr")
    theirs = zarr.open_group(
        str(tmp_path / "root"), mode="w", zarr_format=version, attributes={"n": 1}
    )
    theirs.create_array("x/y", shape=(4,), dtype="i4", chunks=(2,))[...] = [1, 2, 3, 4]
    zarr.consolidate_metadata(str(tmp_path / "root"), zarr_format=version)
    root = group_at(tmp_path / "root")
    assert root["x/y"][...].tolist() == [1, 2, 3, 4]
    assert dict(root.attrs) == {"n": 1}
    assert root.consolidated is True
    theirs["x/y"].attrs["later"] = 1
    assert root.consolidated is False
    assert dict(root["x/y"].attrs) == {"later": 1}
    root["x/y"].append([5])
    root.consolidate()
    again = zarr.open_consolidated(str(tmp_path / "root"), zarr_format=version)
    assert again["x/y"][...].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", [2, 3])
def test_copies_that_zarr_spells_differently_are_true(tmp_path: Path, version: int) -> None:
    """zarr-python spells out in copies what our documents leave to their defaults."""
    zarr = pytest.importorskip("zarr")
    root = ingot.group(tmp_path / "root", format=f"zarr{version}")
    root.array("a", np.arange(10.0), chunks=3, fill=np.nan, attrs={"units": "m"})
    root.array("b/c", [[True, False]], chunks=1, codec="zstd:3")
    zarr.consolidate_metadata(str(tmp_path / "root"), zarr_format=version)
    key, name = {2: (".zmetadata", "a/.zarray"), 3: ("zarr.json", "a")}[version]
    document = json.loads((tmp_path / "root" / key).read_bytes())
    copies = document["metadata"] if version == 2 else document["consolidated_metadata"]["metadata"]
    real = name if version == 2 else "a/zarr.json"
    assert copies[name] != json.loads((tmp_path / "root" / real).read_bytes())
    assert root.consolidated is True
    copies[name]["fill_value"] = 0
    (tmp_path / "root" / key).write_text(json.dumps(document))
    assert root.consolidated is False


@pytest.mark.parametrize(
    ("version", "field", "value", "same"),
    [
        (2, "dimension_separator", ".", True),
        (2, "dimension_separator", "/", False),
        (2, "filters", [], True),
        (2, "filters", [{"id": "crc32"}], False),
        (2, "compressor", {"id": "unheard of"}, False),
        (2, "note", "of another program", False),
        (3, "storage_transformers", [], True),
        (3, "storage_transformers", [{"name": "unheard of"}], False),
        (3, "dimension_names", None, True),
        (3, "dimension_names", ["x"], False),
        (3, "chunk_key_encoding", "default", True),
        (3, "chunk_key_encoding", "v2", False),
        (3, "attributes", {"n": 1}, False),
        (3, "note", {"must_understand": False}, False),
        (3, "node_type", "group", False),
    ],
)
def test_copies_are_compared_by_what_they_say(
    version: int, field: str, value: Any, same: bool
) -> None:
    store = MemoryStore()
    root = ingot.group(store, format=f"zarr{version}")
    root.array("a", [1, 2, 3], codec="none")
    root.consolidate()
    key = {2: ".zmetadata", 3: "zarr.json"}[version]
    [data] = store.read([Extent(key)])
    document = json.loads(data or b"")
    copies = document["metadata"] if version == 2 else document["consolidated_metadata"]["metadata"]
    copies[{2: "a/.zarray", 3: "a"}[version]][field] = value
    put(store, {key: json.dumps(document).encode()})
    assert root.consolidated is same


# Arrays of other axes in the same place -----------------------------------------------------------


SHAPES = [((4, 4), (4,)), ((2, 2, 2), (4,)), ((2, 2, 2), (3, 3)), ((4,), (4, 4)), ((4,), (2, 2, 2))]


@pytest.mark.parametrize("shapes", SHAPES)
def test_empty_folders_do_not_prevent_creation(
    tmp_path: Path, shapes: Any, each_format: None
) -> None:
    old, new = shapes
    for number, create in enumerate((_delete_then_fill, _delete_then_read, _replace)):
        root = ingot.group(tmp_path / str(number), format=FORMAT)
        root.array("a", np.ones(old), dimension_separator="/", chunks=(1,) * len(old))
        found = create(root, new)
        assert found.tolist() == ingot.open(tmp_path / str(number) / "a")[...].tolist()
        assert found.tolist() == np.full(new, 0 if create is _delete_then_read else 5).tolist()


def _delete_then_fill(root: ingot.Group, shape: Any) -> Any:
    del root["a"]
    root.array("a", np.full(shape, 5), dimension_separator="/", chunks=(1,) * len(shape))
    return root["a"][...]


def _delete_then_read(root: ingot.Group, shape: Any) -> Any:
    del root["a"]
    root.create_array(
        "a", shape=shape, dtype="i8", dimension_separator="/", chunks=(1,) * len(shape)
    )
    return root["a"][...]


def _replace(root: ingot.Group, shape: Any) -> Any:
    wishes = {"dimension_separator": "/", "chunks": (1,) * len(shape)}
    root.array("a", np.full(shape, 5), overwrite=True, **wishes)
    return root["a"][...]


def test_a_smaller_array_leaves_no_folders_in_the_way(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "root", format="zarr2")
    wishes = {"dimension_separator": "/", "chunks": 2, "dtype": "i8"}
    root.array("a", np.ones((4, 4)), **wishes)
    root.create_array("a", shape=6, overwrite=True, **wishes)
    assert root["a"][...].tolist() == [0] * 6
    root.array("a", np.ones(2), overwrite=True, **wishes)
    root["a"].resize(6)
    assert root["a"][...].tolist() == [1, 1, 0, 0, 0, 0]


def test_a_folder_of_others_is_not_removed_with_an_array(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "root", format="zarr2")
    root.array("a", [1, 2])
    (tmp_path / "root" / "a" / "7").mkdir()
    (tmp_path / "root" / "a" / "7" / "mine").write_text("mine")
    del root["a"]
    assert "a" not in root
    assert (tmp_path / "root" / "a" / "7" / "mine").read_text() == "mine"


CONTROL_NAMES = [".commit", ".commit/x", ".lock", ".lock/x", "a/.lock", ".g-2f81-a", ".zarray"]


@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
@pytest.mark.parametrize("stored", ["memory", "folder", "zip"])
@pytest.mark.parametrize("name", CONTROL_NAMES)
def test_names_of_control_files_are_refused_before_anything_is_made(
    tmp_path: Path, format: str, stored: str, name: str
) -> None:
    path = {"memory": None, "folder": tmp_path / "g", "zip": tmp_path / "g.zip"}[stored]
    root = ingot.group(path, format=format)
    root.array("kept", [1, 2])
    if name == ".zarray" and format == "zarr3":
        root.array(name, [3])  # The name of a document of another version is a name like any other.
        assert root[name][:].tolist() == [3]
        return
    before = sorted(each.name for each in tmp_path.rglob("*"))
    with pytest.raises(UnsafeError, match="control file"):
        root.array(name, [3])
    with pytest.raises(UnsafeError, match="control file"):
        root.group(name)
    assert sorted(each.name for each in tmp_path.rglob("*")) == before
    assert list(root) == ["kept"]
    if path is not None:
        assert list(ingot.open(path)) == ["kept"]


@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
@pytest.mark.parametrize("name", ["a.", "a../b", "b/a."])
def test_names_that_end_with_a_dot_are_refused_before_anything_is_made(
    tmp_path: Path, format: str, name: str
) -> None:
    root = ingot.group(tmp_path / "g", format=format)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsafeError, match="ends with a dot"):
        root.array(name, [3])
    with pytest.raises(UnsafeError, match="ends with a dot"):
        root.group(name)
    assert sorted(tmp_path.rglob("*")) == before


# Names of h5py and zarr ---------------------------------------------------------------------------


def test_assigning_stores_an_array_by_one_commit(place: Place) -> None:
    root = ingot.group(place, format=FORMAT)
    root["day/rain"] = [1, 2, 3]
    assert group_at(place)["day/rain"][...].tolist() == [1, 2, 3]
    root["day/rain"] = np.arange(4.0)
    assert group_at(place)["day/rain"][...].tolist() == [0, 1, 2, 3]
    root["copy"] = root["day/rain"]
    assert group_at(place)["copy"][...].tolist() == [0, 1, 2, 3]
    with pytest.raises(ExistsError, match="only arrays are replaced"):
        root["day"] = [1]
    with pytest.raises(TypeError, match="`copy` stores"):
        root["other"] = root["day"]
    assert list(root) == ["copy", "day"] == root._ipython_key_completions_()


def test_arrays_and_groups(place: Place) -> None:
    root = ingot.group(place, format=FORMAT)
    root["b"], root["a"] = [1], [2]
    root.create_group("g", attrs={"n": 1})
    assert [(name, array[0]) for name, array in root.arrays()] == [("a", 2), ("b", 1)]
    assert [(name, dict(group.attrs)) for name, group in root.groups()] == [("g", {"n": 1})]


def test_members_that_are_required(place: Place) -> None:
    root = ingot.group(place, format=FORMAT)
    root.require_group("a/b").attrs["n"] = 1
    assert dict(root.require_group("a/b").attrs) == {"n": 1}
    root.require_array("a/x", shape=(2, 3), dtype="<i4", fill=5)[0] = 1
    before = stored(place)
    found = group_at(place, "r").require_array("a/x", shape=(2, 3), dtype="<i4")
    assert found[...].tolist() == [[1, 1, 1], [5, 5, 5]]
    assert group_at(place, "r").require_group("a").keys() == {"b", "x"}
    for wrong in ({"shape": (3, 2), "dtype": "<i4"}, {"shape": (2, 3), "dtype": "<f4"}):
        with pytest.raises(ExistsError, match=r"'a/x' has shape \(2, 3\) and type int32, not"):
            root.require_array("a/x", **wrong)
    with pytest.raises(ExistsError, match="is a group, not an array"):
        root.require_array("a", shape=3, dtype="i4")
    with pytest.raises(ExistsError, match="is an array, not a group"):
        root.require_group("a/x")
    with pytest.raises(ReadOnlyError):
        group_at(place, "r").require_group("absent")
    assert stored(place) == before


def a_tree_to_copy(place: Place, **layout: Any) -> ingot.Group:
    root = ingot.group(place, format=FORMAT)
    day = root.group("day", attrs={"title": "day"})
    rain = np.arange(600.0).reshape(20, 30)
    day.array("rain", rain, chunks=(7, 11), codec="zlib:3", order="F", attrs={"units": "mm"})
    day.create_array("deep/empty", shape=5, dtype="i2", fill=3, chunks=2)
    return root


@pytest.mark.parametrize("consolidated", [False, True])
def test_a_copy_has_the_bytes_of_its_source(place: Place, consolidated: bool) -> None:
    root = a_tree_to_copy(place)
    if consolidated:
        root.consolidate()
    copied = root.copy("day", "all/days/first")
    assert isinstance(copied, ingot.Group)
    now = stored(place)
    old = {key.removeprefix("day/"): now[key] for key in now if key.startswith("day/")}
    new = "all/days/first/"
    assert old == {key.removeprefix(new): now[key] for key in now if key.startswith(new)}
    again = group_at(place)
    np.testing.assert_array_equal(again[new + "rain"][...], np.arange(600.0).reshape(20, 30))
    assert again["all/days"].keys() == {"first"}
    assert again.consolidated is (True if consolidated else None)
    again[new + "rain"][0] = -1
    assert again["day/rain"][0, 5] == 5
    assert isinstance(root.copy("day/rain", "rain"), ingot.Array)
    assert root["rain"].chunks == (7, 11)
    assert dict(root["rain"].attrs) == {"units": "mm"}


def test_a_copy_from_elsewhere(place: Place, tmp_path: Path) -> None:
    source, root = a_tree_to_copy(tmp_path / "source"), ingot.group(place, format=FORMAT)
    root.copy(source["day"], "day")
    assert group_at(place)["day/deep/empty"][...].tolist() == [3] * 5
    root.copy(source, "whole")
    assert group_at(place)["whole/day/rain"][1, 0] == 30
    alone = ingot.array([1, 2], format=FORMAT)
    assert root.copy(alone, "alone")[...].tolist() == [1, 2]
    other = ingot.array([1], format="zarr3" if FORMAT == "zarr2" else "zarr2")
    assert root.copy(other, "other").format == FORMAT
    with pytest.raises(TypeError, match="not ndarray"):
        root.copy(np.arange(3), "numbers")  # type: ignore[arg-type]


@pytest.mark.parametrize("consolidated", [False, True])
def test_a_move_leaves_nothing_behind(place: Place, consolidated: bool) -> None:
    root = a_tree_to_copy(place)
    if consolidated:
        root.consolidate()
    before = stored(place)
    root.move("day", "all/days")
    now = stored(place)
    assert not [key for key in now if key.startswith("day/")]
    new = {key.removeprefix("all/days/"): now[key] for key in now if key.startswith("all/days/")}
    assert new == {key.removeprefix("day/"): before[key] for key in before if key[:4] == "day/"}
    assert group_at(place).consolidated is (True if consolidated else None)
    root.move("all/days", "all/days")
    assert stored(place) == now


def test_copies_and_moves_that_are_refused(place: Place) -> None:
    root = a_tree_to_copy(place)
    root["one"] = [1]
    before = stored(place)
    for change in (root.copy, root.move):
        with pytest.raises(ExistsError, match="'one' exists already"):
            change("day", "one")
        with pytest.raises(MemberError):
            change("absent", "two")
        with pytest.raises(UnsupportedError, match="lies in the source"):
            change("day", "day/inside")
        with pytest.raises(IngotError):
            change("day", "one/inside")
        with pytest.raises(UnsafeError):
            change("day", "../outside")
        with pytest.raises(ReadOnlyError):
            getattr(group_at(place, "r"), change.__name__)("day", "two")
    assert stored(place) == before


@pytest.mark.parametrize("change", ["move", "copy"])
def test_a_copy_or_a_move_is_one_commit(change: str) -> None:
    commits: list[Commit] = []

    class Watched(MemoryStore):
        def apply(self, commit: Commit, **more: Any) -> None:
            commits.append(commit)
            super().apply(commit, **more)

    root = a_tree_to_copy(Watched())
    root.consolidate()
    commits.clear()
    getattr(root, change)("day", "some/where")
    assert len(commits) == 1


def test_a_move_is_part_of_a_transaction_around_it() -> None:
    store = MemoryStore()
    root = a_tree_to_copy(store)
    before, names = content(store), []
    with suppress(RuntimeError), root.transaction():
        root.move("day", "again")
        names += root
        raise RuntimeError
    assert (names, content(store)) == (["again"], before)


def test_a_copy_larger_than_what_a_transaction_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingot.containers.group._COPIED_BYTES", 100)
    root = a_tree_to_copy(tmp_path / "root")
    root.copy("day", "copy")
    np.testing.assert_array_equal(root["copy/rain"][...], root["day/rain"][...])


def test_a_copy_of_another_format_is_stored_anew(tmp_path: Path) -> None:
    old = ingot.group(tmp_path / "old", format="zarr2", attrs={"title": "old"})
    data = np.arange(30).reshape(5, 6)
    old.array("a/b", data, chunks=(2, 3), codec="zlib:2", fill=7, attrs={"unit": "K"})
    group = ingot.group(tmp_path / "new.zarr")
    made = group.copy(old, "from/old")
    copied = made["a/b"]
    assert (copied.format, copied.chunks, copied.fill) == ("zarr3", (2, 3), 7)
    assert copied.codec[0].name == "zlib"
    assert np.array_equal(copied[...], data)
    assert dict(made.attrs) == {"title": "old"}
    assert dict(copied.attrs) == {"unit": "K"}


def test_a_copy_of_a_table_is_a_group_of_its_columns(tmp_path: Path) -> None:
    columns = {"day": np.arange(5), "deep": {"price": np.arange(5) * 1.5}}
    table = ingot.table(columns, tmp_path / "t.bcolz", attrs={"n": 1})
    group = ingot.group()
    made = group.copy(table, "t")
    assert made["day"][...].tolist() == [0, 1, 2, 3, 4]
    assert made["deep/price"][4] == 6.0
    assert dict(made.attrs) == {"n": 1}
    text = ingot.table({"a": [1, 2], "s": ["x", "yy"]}, tmp_path / "s.bcolz")
    with pytest.raises(UnsupportedError, match="variable length"):
        group.copy(text, "s")
    assert list(group) == ["t"], "it is one commit"


def test_a_copy_of_a_plain_folder(tmp_path: Path) -> None:
    ingot.array([1, 2], tmp_path / "data" / "a.blp")
    ingot.array([3, 4], tmp_path / "data" / "old" / "b.bcolz")
    made = ingot.group().copy(ingot.open(tmp_path / "data"), "all")
    assert made["a.blp"][...].tolist() == [1, 2]
    assert made["old/b.bcolz"][...].tolist() == [3, 4]


def test_assigning_a_table_stores_a_group_of_its_columns():
    root = ingot.group()
    root["prices"] = ingot.table({"day": [1, 2], "price": [1.5, 2.5]}, attrs={"from": "Oslo"})
    assert isinstance(root["prices"], ingot.Group)
    assert list(root["prices"]) == ["day", "price"]
    assert dict(root["prices"].attrs) == {"from": "Oslo"}
    with pytest.raises(ExistsError):
        root["prices"] = ingot.table({"day": [3]})
    with pytest.raises(UnsupportedError, match="variable length"):
        root["text"] = ingot.table({"text": ["a", "bb"]})
    assert list(root) == ["prices"]

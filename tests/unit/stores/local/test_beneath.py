"""Nothing outside the root is reached, nothing special is opened, whatever lies there."""

import ctypes
import errno
import os
import random
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.errors import IngotError, UnsafeError, UnsupportedError
from ingot.stores import Commit, Delete, Extent, LocalStore, Patch, Put
from ingot.stores.local import beneath
from ingot.stores.local.beneath import Root

pytestmark = pytest.mark.usefixtures("_soon", "_no_leaks", "_resolution")

SECRET = b"the canary"
ASK_KERNEL = beneath._kernel_resolves.__wrapped__


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "chunk").write_bytes(b"chunk")
    (folder / "chunk").write_bytes(b"top")
    return folder


@pytest.fixture
def store(inside: Path) -> LocalStore:
    return LocalStore(inside, writable=True)


def _make_folder(path: Path, outside: Path) -> None:
    # An empty one would make room: keys that are gone leave their folders behind.
    path.mkdir()
    (path / "file").write_bytes(b"kept")


def _make_pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _make_socket(path: Path, outside: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # The path of a socket has to be short.
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def _make_device(path: Path, outside: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only a privileged user makes devices")


def _make_link(target: str) -> Callable[[Path, Path], None]:
    def make(path: Path, outside: Path) -> None:
        path.symlink_to(target.format(outside=outside, inside=path.parent))

    return make


SPECIAL = {
    "a folder": _make_folder,
    "a pipe": _make_pipe,
    "a socket": _make_socket,
    "a device": _make_device,
    "a link to a device": _make_link("/dev/zero"),
    "an absolute link out": _make_link("{outside}/secret"),
    "a relative link out": _make_link("../outside/secret"),
    "a link out to nothing": _make_link("../outside/nothing"),
    "an absolute link to the inside": _make_link("{inside}/chunk"),
    "a link out and in again": _make_link("../inside/chunk"),
    "a link by way of a folder": _make_link("real/../../outside/secret"),
    "a link to itself": _make_link("special"),
    "a link to the root": _make_link("."),
    "a link to a pipe": _make_link("real/pipe"),
}


@pytest.fixture(params=SPECIAL)
def special(request: pytest.FixtureRequest, inside: Path, outside: Path) -> Path:
    os.mkfifo(inside / "real" / "pipe")
    path = inside / "special"
    SPECIAL[request.param](path, outside)
    return path


def test_special_files_are_not_read(store: LocalStore, special: Path) -> None:
    for read in (
        lambda: store.read([Extent("chunk"), Extent("special", 0, 1)]),
        lambda: store.size("special"),
        lambda: store.apply(Commit(publish=(Patch("special", 0, b"x"),))),
    ):
        with pytest.raises(UnsafeError, match="'special'") as caught:
            read()
        assert store.root in str(caught.value)


def test_special_files_are_listed_but_not_entered(store: LocalStore, special: Path) -> None:
    before = special.lstat()
    (name,) = [name for name in store.names() if name.startswith("special")]
    entered = special.is_dir() and (not special.is_symlink() or os.readlink(special) == ".")
    assert name == ("special/" if entered else "special")
    assert special.lstat() == before


def test_a_put_replaces_special_files_and_leaves_what_they_lead_to(
    store: LocalStore, special: Path, outside: Path
) -> None:
    if special.is_dir() and not special.is_symlink():
        (special / "file").write_bytes(b"kept")
        with pytest.raises(UnsafeError, match=r"'special'.* folder"):
            store.apply(Commit(publish=(Put("special", b"new"),)))
        assert (special / "file").read_bytes() == b"kept"
    else:
        store.apply(Commit(publish=(Put("special", b"new"),)))
        assert special.read_bytes() == b"new"
        assert not special.is_symlink()
    assert (outside / "secret").read_bytes() == SECRET
    assert not [name for name in store.names(hidden=True) if name.startswith(".g-")]


def test_a_delete_removes_the_name_and_nothing_behind_it(
    store: LocalStore, special: Path, outside: Path
) -> None:
    if special.is_dir() and not special.is_symlink():
        (special / "file").write_bytes(b"kept")
        with pytest.raises(UnsafeError, match=r"'special'.* folder"):
            store.apply(Commit(cleanup=(Delete("special"),)))
        assert (special / "file").read_bytes() == b"kept"
    else:
        store.apply(Commit(cleanup=(Delete("special"),)))
        assert not os.path.lexists(special)
    assert (outside / "secret").read_bytes() == SECRET
    assert (special.parent / "chunk").read_bytes() == b"top"


@pytest.mark.parametrize("target", ["{outside}", "../outside", "real/../../outside"])
def test_linked_folders_out_are_closed(
    store: LocalStore, inside: Path, outside: Path, target: str
) -> None:
    (inside / "door").symlink_to(target.format(outside=outside))
    before = sorted(os.listdir(outside))
    for use in (
        lambda: store.read([Extent("door/secret")]),
        lambda: store.read([Extent("door/nothing")]),
        lambda: store.size("door/secret"),
        lambda: list(store.names("door")),
        lambda: store.apply(Commit(publish=(Put("door/new", b"x"),))),
        lambda: store.apply(Commit(publish=(Put("door/new/deeper/x", b"x"),))),
        lambda: store.apply(Commit(publish=(Patch("door/secret", 0, b"x"),))),
        lambda: store.apply(Commit(publish=(Delete("door/secret"),))),
    ):
        with pytest.raises(UnsafeError, match="door"):
            use()
    assert sorted(os.listdir(outside)) == before
    assert (outside / "secret").read_bytes() == SECRET
    assert "door" in store.names()


@pytest.mark.parametrize(
    ("target", "key", "expected"),
    [
        ("chunk", "link", b"top"),
        ("./real/../real//chunk", "link", b"chunk"),
        ("real/chunk", "link", b"chunk"),
        ("real", "link/chunk", b"chunk"),
        ("real/", "link/chunk", b"chunk"),
        (".", "link/real/chunk", b"chunk"),
        ("real/..", "link/chunk", b"top"),
        ("nothing", "link", None),
        ("nothing", "link/chunk", None),
        ("chunk", "link/chunk", None),
        ("chunk/", "link", None),
    ],
)
def test_links_that_stay_inside_are_followed(
    store: LocalStore, inside: Path, target: str, key: str, expected: bytes | None
) -> None:
    (inside / "link").symlink_to(target)
    assert store.read([Extent(key)]) == [expected]
    assert store.size(key) == (None if expected is None else len(expected))


def test_linked_folders_inside_are_written_and_listed(store: LocalStore, inside: Path) -> None:
    (inside / "data").symlink_to("real")
    (inside / "real" / "up").symlink_to("../chunk")
    store.apply(Commit(publish=(Put("data/new/0", b"x"), Patch("data/up", 0, b"T"))))
    assert (inside / "real" / "new" / "0").read_bytes() == b"x"
    assert (inside / "chunk").read_bytes() == b"Top"
    assert list(store.names()) == ["chunk", "data/", "real/"]
    assert list(store.names("data")) == ["chunk", "new/", "up"]


def test_the_root_may_be_a_link(inside: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to("inside")
    store = LocalStore(tmp_path / "alias", writable=True)
    store.apply(Commit(publish=(Put("a/b", b"x"),)))
    assert store.read([Extent("real/chunk"), Extent("a/b")]) == [b"chunk", b"x"]


def test_a_folder_that_turns_into_a_link_while_reading(
    store: LocalStore, inside: Path, outside: Path
) -> None:
    (outside / "chunk").write_bytes(SECRET)
    finished = threading.Event()

    def swap() -> None:
        while not finished.is_set():
            (inside / "real").rename(inside / "aside")
            (inside / "real").symlink_to("../outside")
            (inside / "real").unlink()
            (inside / "aside").rename(inside / "real")

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set[bytes | None]()
    try:
        for count in range(50_000):
            if count > 1500 and len(seen) > 1:
                break
            try:
                seen.update(store.read([Extent("real/chunk")]))
            except UnsafeError:
                seen.add(b"refused")
    finally:
        finished.set()
        swapping.join()
    assert seen <= {b"chunk", b"refused", None}
    assert len(seen) > 1


def test_both_ways_of_opening_agree(tmp_path: Path) -> None:
    if not beneath._kernel_resolves():
        pytest.skip("compared once, where the kernel resolves")
    outcomes = set()
    for seed in range(150):
        folder = tmp_path / str(seed)
        keys = _tangle(folder, random.Random(seed))
        root = Root(folder)
        inside = root.create()
        for key in keys:
            by_kernel = _outcome(beneath._open_by_kernel, inside, key)
            assert by_kernel == _outcome(beneath._open_by_walk, inside, key), (seed, key)
            outcomes.add(by_kernel)
        os.close(inside)
    assert {b"x", "absent", "folder", errno.EXDEV, errno.ELOOP} <= outcomes


def _tangle(folder: Path, chance: random.Random) -> list[str]:
    """Make files, folders and links at random; return keys that go through them."""
    places = ["a", "b", "c", "a/a", "a/b", "a/c", "b/a", "b/b", "b/c"]
    (folder / "a").mkdir(parents=True)
    for place in places[1:]:
        path = folder / place
        if not path.parent.is_dir() or path.parent.is_symlink():
            continue
        kind = chance.randrange(5)
        if kind == 0:
            path.mkdir()
        elif kind == 1:
            path.write_bytes(b"x")
        elif kind < 4:
            path.symlink_to("/".join(chance.choices(["a", "b", "c", "..", "."], k=3)))
    return [*places, *(f"{first}/{second}" for first in places for second in places)]


def _outcome(opened_by: Callable[[int, str, int], int], inside: int, key: str) -> object:
    try:
        descriptor = opened_by(inside, key, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return "absent" if error.errno in (errno.ENOENT, errno.ENOTDIR) else error.errno
    try:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        return "folder" if folder else os.pread(descriptor, 10, 0)
    finally:
        os.close(descriptor)


def test_forty_links_are_followed_and_no_more(store: LocalStore, inside: Path) -> None:
    (inside / "0").symlink_to("chunk")
    for number in range(1, 41):
        (inside / str(number)).symlink_to(str(number - 1))
    assert store.read([Extent("39")]) == [b"top"]
    with pytest.raises(UnsafeError, match="links"):
        store.read([Extent("40")])


@pytest.mark.parametrize("_resolution", ["kernel", "walk"], indirect=True)
def test_the_kernel_is_asked_again_when_it_gives_up(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not beneath._kernel_resolves():
        pytest.skip("without the kernel there is nothing to ask again")
    real = beneath._system_call()
    codes = [errno.EAGAIN, errno.EINTR, errno.EAGAIN]

    def interrupted(*arguments: object) -> int:
        if codes:
            ctypes.set_errno(codes.pop())
            return -1
        return real(*arguments)

    monkeypatch.setattr(beneath, "_system_call", lambda: interrupted)
    assert store.read([Extent("chunk")]) == [b"top"]
    codes[:] = [errno.EAGAIN] * 1000
    with pytest.raises(BlockingIOError, match="chunk"):
        store.read([Extent("chunk")])
    assert codes


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_without_the_system_call_keys_are_walked(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(inside: int, key: str, flags: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(beneath, "_kernel_resolves", ASK_KERNEL)
    monkeypatch.setattr(beneath, "_open_by_kernel", refused)
    assert store.read([Extent("real/chunk")]) == [b"chunk"]


@pytest.mark.parametrize("_resolution", ["kernel", "walk"], indirect=True)
def test_other_errors_are_raised_as_they_are_with_the_key(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = beneath._open_beneath

    def denied(inside: int, key: str, flags: int) -> int:
        if key in (".", ".commit"):
            return real(inside, key, flags)
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(beneath, "_open_beneath", denied)
    for use in (
        lambda: store.read([Extent("real/chunk")]),
        lambda: store.size("real/chunk"),
        lambda: list(store.names("real/chunk")),
        lambda: store.apply(Commit(publish=(Put("real/chunk/x", b""),))),
    ):
        with pytest.raises(PermissionError) as caught:
            use()
        assert not isinstance(caught.value, IngotError)
        assert caught.value.errno == errno.EACCES
        assert f"{store.root}/real/chunk" in str(caught.value)
        assert caught.value.__notes__ == [f"key 'real/chunk' of the store at {store.root}"]


def test_platforms_without_relative_opening_are_refused(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", frozenset())
    with pytest.raises(UnsupportedError, match="local stores"):
        LocalStore(inside)

"""The page is one file, its texts are escaped, and a browser draws it."""

import base64
import json
import re
import shutil
import struct
import subprocess
import zlib

import numpy as np
import pytest

import ingot
from ingot.containers.page import page_of

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

needs_browser = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")

NASTY = "</script><script>document.body.dataset.hacked=1</script><img src=x onerror=alert(1)>"


def data_of(page):
    text = re.search(r'<script id="data"[^>]*>(.*?)</script>', page, re.DOTALL).group(1)
    return json.loads(text)


def browse(page, *options):
    """Return what headless Chromium prints for a page."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    done = subprocess.run(
        [*command, "--window-size=1000,900", *options, f"file://{page}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pixels(path):
    """Return the pixels of a PNG file of 8 bits, as rows of colours."""
    data, at, parts, size = path.read_bytes(), 8, b"", (0, 0)
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            size, channels = struct.unpack(">II", body[:8]), {2: 3, 6: 4}[body[9]]
        parts += body if kind == b"IDAT" else b""
        at += 12 + length
    raw = np.frombuffer(zlib.decompress(parts), np.uint8).reshape(size[1], -1)
    rows = np.zeros((size[1] + 1, size[0], channels), np.uint8)
    for number, line in enumerate(raw):
        rows[number + 1] = _unfiltered(line[0], line[1:].reshape(size[0], channels), rows[number])
    return rows[1:, :, :3]


def _unfiltered(filter, line, above):
    if filter == 0:
        return line
    if filter == 1:
        return np.cumsum(line, 0, dtype=np.uint8)
    if filter == 2:
        return line + above
    found = np.zeros_like(line)
    left, corner = np.zeros(line.shape[1], np.int64), np.zeros(line.shape[1], np.int64)
    for at, value in enumerate(line.astype(np.int64)):
        up = above[at].astype(np.int64)
        if filter == 3:
            guess = (left + up) // 2
        else:
            far = np.abs(np.stack([up - corner, left - corner, left + up - 2 * corner]))
            guess = np.where(
                (far[0] <= far[1]) & (far[0] <= far[2]),
                left,
                np.where(far[1] <= far[2], up, corner),
            )
        left, corner = (value + guess) & 255, up
        found[at] = left
    return found


@pytest.fixture
def folder(tmp_path):
    array = ingot.create(
        tmp_path / "a.zarr", shape=(3, 40, 60), dtype="f8", chunks=(1, 10, 10), attrs={NASTY: NASTY}
    )
    array[:2] = np.random.default_rng(1).normal(size=(2, 40, 60))
    ingot.table({"day": np.arange(100), "text": np.array([NASTY] * 100)}, tmp_path / "t.bcolz")
    (tmp_path / "broken").symlink_to("nowhere")
    return tmp_path


def test_everything_is_on_the_page(folder):
    page = page_of(ingot.open(folder), "ours")
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", page)
    assert page.count("<script") == 2
    assert "<img" not in page
    found = {each["name"]: each for each in data_of(page)["datasets"]}
    assert list(found) == ["", "a.zarr", "broken", "t.bcolz"]
    assert found["broken"]["summary"] == "a broken link"
    grid = found["a.zarr"]["grid"]
    assert grid["counts"] == [3, 4, 6]
    state = np.frombuffer(base64.b64decode(grid["state"]), np.uint8)
    assert state.tolist() == [0] * 48 + [2] * 24
    assert [column["name"] for column in found["t.bcolz"]["columns"]] == ["day", "text"]
    assert found["t.bcolz"]["first"][0][:3] == ["0", "1", "2"]


def test_large_arrays_are_not_decoded(folder):
    with ingot.open(folder / "a.zarr") as array:
        grid = data_of(page_of(array, "a", read_bytes=100))["datasets"][0]["grid"]
    assert grid["smallest"] is None
    assert grid["shown"] == []


@needs_browser
def test_a_browser_shows_the_page_and_runs_nothing_of_the_data(folder, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(page_of(ingot.open(folder), NASTY))
    shown = browse(page, "--dump-dom")
    assert "data-ready" in shown
    assert "data-hacked" not in shown
    assert shown.count("<canvas") == 3
    assert "&lt;img src=x" in shown
    assert re.search(r'aria-label="72 chunks, stored, not stored', shown)


@needs_browser
@pytest.mark.parametrize(
    ("options", "paper"),
    [((), (255, 255, 255)), (("--blink-settings=preferredColorScheme=0",), (0x14, 0x17, 0x1C))],
    ids=["light", "dark"],
)
def test_a_browser_draws_the_chunks_in_both_schemes(tmp_path, options, paper):
    array = ingot.create(tmp_path / "a.zarr", shape=(40, 60), dtype="f8", chunks=(10, 10))
    array[:20] = np.random.default_rng(1).normal(size=(20, 60))
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    page.write_text(page_of(array, "a"))
    browse(page, f"--screenshot={picture}", *options)
    colours, counts = np.unique(pixels(picture).reshape(-1, 3), axis=0, return_counts=True)
    found = dict(zip(map(tuple, colours.tolist()), counts.tolist(), strict=True))
    assert max(found, key=found.__getitem__) == paper
    unstored = (0xC9, 0xCC, 0xD1) if not options else (0x3D, 0x43, 0x4C)
    # Twelve chunks are not stored, and each is a square of 27 pixels beside its gap.
    assert 12 * 27**2 <= found[unstored] < 12 * 27**2 * 1.1


@needs_browser
def test_100_000_chunks_are_drawn_in_a_second(tmp_path):
    array = ingot.create(shape=(1000, 1000), dtype="u1", chunks=(2, 5))
    array[:500] = 1
    page = tmp_path / "page.html"
    page.write_text(page_of(array, "many", read_bytes=0))
    assert len(data_of(page.read_text())["datasets"][0]["grid"]["state"]) > 100_000
    times = []
    for _ in range(3):
        times.append(int(re.search(r'data-ready="(\d+)"', browse(page, "--dump-dom")).group(1)))
        if times[-1] < 1000:
            break
    assert min(times) < 1000


@needs_browser
def test_a_browser_shows_what_of_packed_files_no_chunk_has(tmp_path):
    array = ingot.array(np.arange(6000), tmp_path / "a.blsk", chunks=300)
    for start in range(0, 6000, 600):
        array[start : start + 300] = np.random.default_rng(start).integers(0, 2**40, 300)
    dead, spare = array.info.to_dict()["dead"], array.info.to_dict()["spare"]
    assert dead
    assert spare is not None
    page = tmp_path / "page.html"
    page.write_text(page_of(array, "a"))
    shown = browse(page, "--dump-dom")
    assert shown.count('class="strip"') == 1
    assert re.search(r"__1__\.bin: [^<]*, 20 chunks, [^<]* hold no chunk", shown)
    assert " dead, " in shown

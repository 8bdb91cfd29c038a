"""``ingot view`` writes one page."""

import json

import ingot
from tests.command import invoke


def test_a_page_is_written(tmp_path, monkeypatch):
    ingot.array([1, 2, 3], tmp_path / "a.zarr").close()
    result = invoke("view", tmp_path / "a.zarr", "-o", tmp_path / "page.html")
    assert result.exit_code == 0
    assert "page.html" in result.stdout
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert str(tmp_path / "a.zarr") in page
    assert invoke("view", tmp_path / "a.zarr", "-o", tmp_path / "page.html").exit_code == 0
    monkeypatch.chdir(tmp_path)
    report = json.loads(invoke("view", "a.zarr", "--json").stdout)
    assert report["page"] == "a.zarr.html"
    refused = invoke("view", "a.zarr")
    assert (refused.exit_code, "--overwrite replaces it" in refused.stderr) == (1, True)
    assert invoke("view", "a.zarr", "--overwrite", "--read", "1M").exit_code == 0


def test_wrong_use(tmp_path):
    assert invoke("view", tmp_path / "missing").exit_code == 1
    assert invoke("view", tmp_path, "--read", "much").exit_code == 2

"""The values of checks and repairs, and which formats fulfil their contracts."""

import json

import numpy as np
import pytest

import ingot
from ingot.formats.checkable import Checkable, Finding, as_checkable, as_repairable, as_suspecting
from ingot.formats.registry import FORMATS
from ingot.stores import Commit, Delete, Extent, MemoryStore, Put


class Plain:
    """A format that checks nothing."""


class Full:
    """A format that does all."""

    def findings(self):
        return iter(())

    def repair(self):
        return None

    def suspects(self):
        return False


@pytest.mark.parametrize("view", [as_checkable, as_repairable, as_suspecting])
def test_a_format_fulfils_what_it_has_methods_for(view):
    assert view(Plain()) is None
    full = Full()
    assert view(full) is full


def test_a_finding_names_the_place_the_fault_the_loss_and_the_repair():
    finding = Finding("t", "chunk", "torn", "c/1", (1,), "items [2:4]", "drop it")
    assert str(finding) == "error: t: c/1: chunk (1,): torn; lost: items [2:4]; repair: drop it"
    assert str(Finding("t", "note", "spare", severity="note")) == "note: t: spare"


def test_a_finding_is_json_and_frozen():
    finding = Finding("t", "chunk", "torn", chunk=(1, 2))
    assert json.loads(json.dumps(finding.as_dict())) == {
        "dataset": "t",
        "kind": "chunk",
        "problem": "torn",
        "file": "",
        "chunk": [1, 2],
        "lost": "",
        "repair": "",
        "severity": "error",
    }
    with pytest.raises(AttributeError):
        finding.kind = "other"
    assert len({finding, Finding("t", "chunk", "torn", chunk=(1, 2))}) == 1


def made(format):
    """Return the store of a small dataset of a format, with attributes."""
    store, kinds = MemoryStore(), ingot.formats()[format]
    if "array" in kinds:
        ingot.array(np.arange(60), store, format=format, chunks=20, attrs={"n": 1})
    else:
        ingot.ragged(["a", "b"], store, format=format, attrs={"n": 1})
    return store


@pytest.mark.parametrize("format", FORMATS)
def test_every_registered_format_is_checkable(format):
    """Its findings of a sound dataset are none, and it says what is wrong with a torn document."""
    found = FORMATS[format]
    assert isinstance(found, Checkable)
    assert as_checkable(found) is found
    store, entry = made(format), FORMATS.entries[format]
    path = "" if entry.is_folder else next(store.names())
    for quick in (False, True):
        node = found.open(store, path)
        assert list(found.findings(store, path, node, "it", quick=quick)) == []
    documents = {name for group in entry.documents for name in group} or set(store.names())
    torn = 0
    for name in documents:
        (data,) = store.read([Extent(name)])
        if data is None:
            continue
        # A single file of zeros is no dataset of any format.
        for damaged in (data[: len(data) // 2], *([bytes(len(data))] if entry.is_folder else [])):
            broken = made(format)
            broken.apply(Commit(publish=(Delete(name), Put(name, damaged))))
            report = ingot.check(broken)
            assert report.findings, (name, damaged)
            torn += any(name in (each.file, each.dataset[-len(name) :]) for each in report.findings)
            for quick in (False, True):
                for finding in found.findings(broken, path, None, "it", quick=quick):
                    assert isinstance(finding, Finding)
                    assert finding.dataset.startswith("it")
    assert torn

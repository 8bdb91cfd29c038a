"""The values of checks and repairs, and which formats fulfil their contracts."""

import json

import pytest

from ingot.formats.checkable import Finding, as_checkable, as_repairable, as_suspecting


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

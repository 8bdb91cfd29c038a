"""The hidden columns of tables: which columns hide, and which claims about them are refused."""

import json
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError
from ingot.formats.validity import is_companion, visible
from ingot.stores import Extent, MemoryStore


def test_names_of_hidden_columns() -> None:
    assert visible(["a", "a.valid", "valid"]) == ("a", "valid")
    assert visible(["a", "a.valid"], plain={"a.valid"}) == ("a", "a.valid")
    assert is_companion("a.valid", {"a"})
    assert not is_companion("a.valid", {"b"})
    assert not is_companion("a", {"a"})


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    ingot.table({"a": [1, None, 3], "b": [1, 2, 3]}, store)
    return store


def changed(store: MemoryStore, key: str, change: dict[str, Any]) -> MemoryStore:
    (data,) = store.read([Extent(key)])
    document = {**json.loads(data or b""), **change}
    return MemoryStore({**content(store), key: json.dumps(document).encode()})


def content(store: MemoryStore) -> dict[str, bytes]:
    keys = list(below(store, ""))
    return {
        key: data or b""
        for key, data in zip(keys, store.read([Extent(k) for k in keys]), strict=True)
    }


def below(store: MemoryStore, folder: str) -> Any:
    for name in store.names(folder):
        yield from below(store, folder + name) if name.endswith("/") else [folder + name]


def test_only_the_document_of_names_lists_a_companion(store: MemoryStore) -> None:
    document = json.loads(content(store)["__rootdirs__"])
    assert document["names"] == ["a", "b"]
    assert document["x_names"] == ["a", "a.valid", "b"]
    assert ingot.open(store, mode="r").names == ("a", "b")


def test_a_column_of_bcolz_may_have_any_name(store: MemoryStore) -> None:
    other = changed(store, "__rootdirs__", {"names": ["a", "a.valid", "b"]})
    table = ingot.open(other, mode="r")
    assert table.names == ("a", "a.valid", "b")
    assert table.read()["a"].tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("a.valid/meta/sizes", {"shape": [2]}, "different length"),
        ("a.valid/meta/storage", {"dtype": "int8", "dflt": 1}, "has type int8"),
        ("__rootdirs__", {"x_names": ["a", "a.valid", "b", "b.valid"]}, "nothing is stored"),
        (
            "__rootdirs__",
            {"names": ["b"], "x_names": ["a.valid", "b"]},
            "says which items of 'a' exist",
        ),
    ],
)
def test_hidden_columns_that_do_not_fit_are_refused(
    store: MemoryStore, key: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorruptionError, match=message):
        ingot.open(changed(store, key, change), mode="r")


def test_a_hidden_column_of_a_nested_table_is_refused_when_it_is_read() -> None:
    store = MemoryStore()
    ingot.table({"q": {"a": [1, None], "b": [1.0, 2.0]}}, store)
    other = changed(store, "q/a.valid/meta/storage", {"dtype": "int8", "dflt": 1})
    with pytest.raises(CorruptionError, match="has type int8"):
        ingot.open(other, mode="r").read()


def test_a_companion_of_blsk_has_booleans() -> None:
    store = MemoryStore()
    ingot.table({"a": np.ma.MaskedArray([1, 2], [False, True])}, store, format="blsk")
    data = content(store)
    assert b"a.valid: bool" in data["meta/storage"]
    data["meta/storage"] = (
        data["meta/storage"]
        .replace(b"a.valid: bool", b"a.valid: int8")
        .replace(b"a.valid: true", b"a.valid: 1")
    )
    with pytest.raises(CorruptionError, match="has type int8"):
        ingot.open(MemoryStore(data), mode="r")

"""Formats of tables that break the contract of variable-length items, each in one way."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ingot.formats.format import RaggedRequest, Splice, TableNode
from ingot.ragged_array import RaggedArray
from ingot.schema import RaggedSchema
from ingot.stores.store import Commit, Delete, Store
from tests.contracts.toy import table
from tests.contracts.toy.table import TableToyFormat, ToyPacks, ToyRaggedMap


class _NullsAreEmpty(ToyPacks):
    def encode(self, items: RaggedArray, number: int) -> bytes:
        whole = replace(items, validity=None)
        return ToyPacks.encode(self, whole, number)


class ForgetsNulls(TableToyFormat):
    def design_ragged(self, request: RaggedRequest, **layout: Any) -> RaggedSchema:
        return replace(super().design_ragged(request), codec=_NullsAreEmpty())


class _ReversedRows(ToyPacks):
    def encode(self, items: RaggedArray, number: int) -> bytes:
        return ToyPacks.encode(self, items.take(np.arange(len(items))[::-1]), number)


class TurnsPacksAround(TableToyFormat):
    def design_ragged(self, request: RaggedRequest, **layout: Any) -> RaggedSchema:
        return replace(super().design_ragged(request), codec=_ReversedRows())


class _LeavesPacks(ToyRaggedMap):
    def removed(self) -> Commit:
        return Commit(publish=tuple(map(Delete, self.documents)))


class _KeepsTheFirstPack(ToyRaggedMap):
    def spliced(self, splices: Sequence[Splice]) -> tuple[ToyRaggedMap, Commit]:
        after, commit = ToyRaggedMap.spliced(self, splices)
        publish = tuple(e for e in commit.publish if not e.key.endswith("pack-0"))
        same = _KeepsTheFirstPack(after.store, after.schema, after.path, after.document)
        return same, replace(commit, publish=publish)


class WithRaggedMap(TableToyFormat):
    """A toy whose columns of items have another map."""

    ragged_map: type[ToyRaggedMap] = ToyRaggedMap

    def open(self, store: Store, path: str = "") -> TableNode:
        return self._exchanged(super().open(store, path))

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> TableNode | None:
        found = super().from_documents(store, path, documents)
        return None if found is None else self._exchanged(found)

    def _exchanged(self, node: TableNode) -> TableNode:
        columns = {
            name: column
            if not isinstance(column, table.RaggedNode)
            else table.RaggedNode(self._map(column.packs))
            for name, column in node.columns.items()
        }
        assert isinstance(node.table, table.ToyTableMap)
        return TableNode(replace(node.table, columns=columns))

    def _map(self, packs: Any) -> ToyRaggedMap:
        return self.ragged_map(packs.store, packs.schema, packs.path, packs.document)


class LeavesPacks(WithRaggedMap):
    ragged_map = _LeavesPacks


class KeepsTheFirstPack(WithRaggedMap):
    ragged_map = _KeepsTheFirstPack

"""Formats that break the contract on purpose, each in one way."""

import json as python_json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ingot.formats.format import ArrayNode, Kind, Request
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Put, Store
from tests.contracts.toy import format as toy
from tests.contracts.toy.format import DOCUMENT, ToyFormat, ToyMap


class WithMap(ToyFormat):
    """A toy whose arrays have another map."""

    chunk_map: type[ToyMap] = ToyMap

    def open(self, store: Store, path: str = "") -> ArrayNode:
        return self._exchanged(super().open(store, path))

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | None:
        found = super().from_documents(store, path, documents)
        return None if found is None else self._exchanged(found)

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        node, commit = super().create(store, schema, path, **layout)
        return self._exchanged(node), commit

    def _exchanged(self, node: ArrayNode) -> ArrayNode:
        chunks = node.chunks
        assert isinstance(chunks, ToyMap)
        return ArrayNode(self.chunk_map(chunks.store, chunks.schema, chunks.document, chunks.path))


class _LeavesChunks(ToyMap):
    def removed(self) -> Commit:
        return Commit(publish=ToyMap.removed(self).publish[:1])


class LeavesChunks(WithMap):
    chunk_map = _LeavesChunks


class _WritesElsewhere(ToyMap):
    def described(self, attrs: Mapping[str, Any]) -> tuple[ToyMap, Commit]:
        after, commit = ToyMap.described(self, attrs)
        self.store.apply(commit)
        return after, commit


class WritesByItself(WithMap):
    chunk_map = _WritesElsewhere


class _LosesAttributes(ToyMap):
    def described(self, attrs: Mapping[str, Any]) -> tuple[ToyMap, Commit]:
        return ToyMap.described(self, {**attrs, "units": "inch"})


class LosesAttributes(WithMap):
    chunk_map = _LosesAttributes


class _KeepsWhatIsCutOff(ToyMap):
    def resized(self, shape: tuple[int, ...]) -> tuple[ToyMap, Commit]:
        after, commit = ToyMap.resized(self, shape)
        return after, Commit(publish=commit.publish)


class KeepsWhatIsCutOff(WithMap):
    chunk_map = _KeepsWhatIsCutOff


class TrustsItsDocument(ToyFormat):
    """Raises whatever Python raises for bytes that are not its document."""

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | None:
        return None

    def open(self, store: Store, path: str = "") -> ArrayNode:
        (data,) = store.read([toy.Extent(DOCUMENT)])
        values = python_json.loads(data or b"{}")
        dtype = np.dtype(values["dtype"])
        shape, chunks = tuple(values["shape"]), tuple(values["chunks"])
        schema = ArraySchema(shape, dtype, chunks, toy.CodecChain(), dtype.type(0))
        return ArrayNode(ToyMap(store, schema))


class ForgetsFillValues(ToyFormat):
    def design(self, request: Request, **layout: Any) -> ArraySchema:
        return super().design(replace(request, fill=np.zeros((), request.dtype)[()]))


class TakesEveryTypeForNumbers(ToyFormat):
    def design(self, request: Request, **layout: Any) -> ArraySchema:
        return super().design(replace(request, dtype=np.dtype("<f8"), fill=np.float64(0)))


class WritesElsewhere(ToyFormat):
    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        chunks = ToyMap(store, schema, path)
        return ArrayNode(chunks), Commit(publish=(Put(DOCUMENT, toy.pack(schema)),))


class HoldsMoreThanItSays(ToyFormat):
    holds = Kind.ARRAY | Kind.RAGGED


class HasAnotherName(ToyFormat):
    name = "tiy"


class SaysSomethingElse(ToyFormat):
    """Finds another array in its document than `open` does."""

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | None:
        found = super().from_documents(store, path, documents)
        if found is None:
            return None
        chunks = found.chunks
        assert isinstance(chunks, ToyMap)
        return ArrayNode(replace(chunks, schema=chunks.schema.resized((99,))))


class AcceptsAnySetting(ToyFormat):
    settings = ("no_such_setting",)

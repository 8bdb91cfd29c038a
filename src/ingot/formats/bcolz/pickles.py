"""Python objects as bcolz stores them: each pickled, in a chunk of its own.

Knows how such a chunk is written and read. Unpickling runs whatever code the bytes hold: the stage
says so of itself (`runs_code`), and the engine refuses it unless the caller has allowed it. That is
why no file can name this stage: the registry of codecs does not know it.
"""

import pickle
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np

from ingot.codecs.codec import Array, Buffer, ChunkSpec, Serializer
from ingot.errors import CorruptionError, UnsafeError
from ingot.fields import FieldReader

__all__ = ["Pickles"]

# The newest that every Python 3 reads; bcolz 1.0 ran on Python 2 as well, which reads up to 2.
_PROTOCOL: Final = 2


@dataclass(frozen=True, slots=True)
class Pickles(Serializer):
    """One pickled object."""

    name: ClassVar[str] = "pickle"
    runs_code: ClassVar[bool] = True

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Complain: no file may ask for it by name."""
        raise UnsafeError(f"codec {cls.name!r} is refused: unpickling runs whatever a file holds")

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Return None: that depends on the object."""

    def encode(self, array: Array) -> Buffer:
        """Return the pickle of the only object."""
        return pickle.dumps(array.reshape(-1)[0], _PROTOCOL)

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the object, as an array of `spec`; text of Python 2 is taken for Latin-1."""
        array = np.empty(spec.shape, spec.dtype)
        try:
            array.reshape(-1)[0] = pickle.loads(data, encoding="latin1")
        except Exception as error:
            # What a pickle raises is up to the pickle.
            raise CorruptionError(f"pickle: {type(error).__name__}: {error}") from error
        return array

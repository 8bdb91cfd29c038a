"""Extension objects of ``zarr.json``: ``name``, ``configuration`` and ``must_understand``.

Data types, chunk grids, chunk key encodings and codecs are spelled as such an object, or as its
name alone. This module parses the object; it knows no particular extension.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingot.errors import FormatError
from ingot.fields import FieldReader, shown

__all__ = ["NamedConfiguration", "parse"]


@dataclass(frozen=True, slots=True)
class NamedConfiguration:
    """An extension by name, with its configuration; `optional` when readers may ignore it.

    >>> NamedConfiguration("zarr.json: codecs[0]", "gzip", {"level": 1}).fields().integer("level")
    1
    """

    where: str
    name: str
    configuration: Mapping[str, object] = field(default_factory=dict)
    optional: bool = False

    def fields(self) -> FieldReader:
        """Return a reader of the fields of the configuration."""
        return FieldReader(f"{self.where}: {self.name}", self.configuration)


def parse(claim: object, where: str, *, required: bool = False) -> NamedConfiguration:
    """Return the extension that a file names; a `required` one cannot be optional.

    >>> parse("default", "zarr.json: chunk_key_encoding").configuration
    {}
    >>> parse({"name": "regular", "must_understand": False}, "grid", required=True)
    Traceback (most recent call last):
    ingot.errors.FormatError: grid: 'regular' must be understood, must_understand cannot be false
    """
    if isinstance(claim, str):
        claim = {"name": claim}
    if not isinstance(claim, dict):
        raise FormatError(f"{where}: {shown(claim)} is no name and no object with a name")
    fields = FieldReader(where, claim)
    name, configuration = fields.text("name"), fields.value("configuration", {})
    if not name:
        raise FormatError(f"{where}: name is empty")
    if not isinstance(configuration, dict):
        raise fields.wrong("configuration", configuration, "an object")
    optional = not fields.flag("must_understand", True)
    fields.finish()
    if optional and required:
        raise FormatError(
            f"{where}: {shown(name)} must be understood, must_understand cannot be false"
        )
    return NamedConfiguration(where, name, configuration, optional)

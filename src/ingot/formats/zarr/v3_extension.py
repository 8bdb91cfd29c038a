"""Extensions as ``zarr.json`` spells them: a name, and what it is configured with.

Knows the object with ``name``, ``configuration`` and ``must_understand``, and the bare name that
may stand for it. Refuses to know any extension.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingot.errors import FormatError
from ingot.fields import FieldReader, shown

__all__ = ["Extension", "parse"]


@dataclass(frozen=True, slots=True)
class Extension:
    """One thing that a document names; `optional` when readers may do without it.

    >>> Extension("zarr.json: codecs[0]", "gzip", {"level": 1}).claims().integer("level")
    1
    """

    where: str
    name: str
    configuration: Mapping[str, object] = field(default_factory=dict)
    optional: bool = False

    def claims(self) -> FieldReader:
        """Return the configuration, to be taken field by field."""
        return FieldReader(f"{self.where}: {self.name}", self.configuration)


def parse(claim: object, where: str, *, required: bool = False) -> Extension:
    """Return the extension that a file claims; a `required` one must be understood.

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
    claims = FieldReader(where, claim)
    name, configuration = claims.text("name"), claims.value("configuration", {})
    if not name:
        raise FormatError(f"{where}: name is empty")
    if not isinstance(configuration, dict):
        raise claims.wrong("configuration", configuration, "an object")
    optional = not claims.flag("must_understand", True)
    claims.finish()
    if optional and required:
        raise FormatError(
            f"{where}: {shown(name)} must be understood, must_understand cannot be false"
        )
    return Extension(where, name, configuration, optional)

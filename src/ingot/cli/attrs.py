"""``ingot attrs``: show, set and remove attributes."""

import json as json_format
from typing import Annotated, Any, Final

import ingot
from ingot.cli.arguments import Dataset, Json
from ingot.cli.output import print_json, print_pairs, print_text, terminal_width
from ingot.cli.parameters import Argument, BadParameter, Option
from ingot.errors import MemberError

__all__ = ["attrs"]

_MOST_LINES: Final = 6
"""How many lines of a terminal a value takes where all attributes are shown."""
_CUT: Final = " …"


def attrs(
    path: Dataset,
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="Show this attribute only.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        Option("-s", "--set", metavar="NAME=VALUE", help="Set an attribute; JSON, or else text."),
    ] = None,
    remove: Annotated[
        list[str] | None, Option("-r", "--remove", metavar="NAME", help="Remove one.")
    ] = None,
    json: Json = False,
) -> None:
    """Show, set and remove attributes.

    All changes of one call are one commit.
    """
    changes = dict(_parse_setting(text) for text in set_ or ())
    with ingot.open(path, "r+" if changes or remove else "r") as dataset:
        if changes or remove:
            with dataset.transaction():
                for each in remove or ():
                    if each not in dataset.attrs:
                        raise MemberError(f"{path}: no attribute {each!r}")
                    del dataset.attrs[each]
                if changes:
                    dataset.attrs.update(changes)
            return
        found = dict(dataset.attrs)
    if name is not None:
        if name not in found:
            hint = f"; --set {name} sets it" if "=" in name else ""
            raise MemberError(f"{path}: no attribute {name!r}{hint}")
        if json:
            print_json(found[name])
        else:
            print(_text(found[name]))
    elif json:
        print_json(found)
    elif found:
        width = terminal_width()
        texts = {each: _text(value) for each, value in found.items()}
        if width is not None:
            texts = {each: _cut(text, _MOST_LINES * width) for each, text in texts.items()}
        print_pairs(texts)
        if width is not None and any(text.endswith(_CUT) for text in texts.values()):
            print_text("(long values are cut; ingot attrs PATH NAME prints one)", style="dim")
    elif terminal_width() is not None:
        print_text("no attributes", style="dim")


def _parse_setting(text: str) -> tuple[str, Any]:
    """Return the name and the value of a setting; what is no JSON is a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadParameter(f"{text!r} is not of the form NAME=VALUE")
    try:
        return name, json_format.loads(value)
    except ValueError:
        return name, value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + _CUT


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)

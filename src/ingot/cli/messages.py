"""Errors as the commands show them."""

__all__ = ["with_notes"]


def with_notes(text: str, error: BaseException) -> str:
    """Return a message with the notes of an error below it.

    >>> error = ValueError("no such column")
    >>> error.add_note("in prices.bcolz")
    >>> with_notes("no such column", error)
    'no such column\\n  in prices.bcolz'
    """
    return text + "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))

"""What is wrong is not timed.

Knows the one error that stops a run. Refuses to know what right means.
"""

__all__ = ["WrongResultError", "require"]


class WrongResultError(Exception):
    """A contender that does not do the work it is timed for.

    >>> issubclass(WrongResultError, Exception)
    True
    """


def require(is_right: bool, complaint: str) -> None:
    """Go on if all is well.

    >>> require(2 + 2 == 5, "two and two make four")
    Traceback (most recent call last):
    benchmarks.verify.WrongResultError: two and two make four
    """
    if not is_right:
        raise WrongResultError(complaint)

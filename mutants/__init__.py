"""Mutants: small changes of the code, each of which the tests nearest to it should notice.

A developer runs them with `./run mutate`; they are no part of `./run test`.
"""

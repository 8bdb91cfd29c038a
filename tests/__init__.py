"""The tests of Ingot; a package so that the fuzzers and shared parts can be named."""

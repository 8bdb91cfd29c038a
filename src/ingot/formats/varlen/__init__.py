"""Variable-length items in one file: version 4 of Bloscpack, the suffix `.blv`."""

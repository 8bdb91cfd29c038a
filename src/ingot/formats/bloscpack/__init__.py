"""Bloscpack files: one file with a header, metadata, offsets, and Blosc chunks with digests."""

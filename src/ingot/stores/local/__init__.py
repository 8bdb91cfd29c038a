"""The local file system as a store: a directory, or a single file."""

"""These tests are about files on a disk."""

from tests.temporary import tmp_path as tmp_path

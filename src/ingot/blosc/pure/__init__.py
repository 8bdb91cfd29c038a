"""Codecs in pure Python, for the streams that no dependency decodes."""

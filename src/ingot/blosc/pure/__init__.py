"""Codecs of Blosc in pure Python, for what no dependency decodes."""

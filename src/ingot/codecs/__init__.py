"""Codecs: what turns the chunks of arrays into bytes and back."""

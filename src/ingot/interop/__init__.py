"""Columns in the shapes of other libraries; each module needs its own, and only when it is used."""

"""What is not collected here."""

# Classes of xarray's own tests; `test_xarray_suite` runs them with the settings that they need.
collect_ignore = ["xarray_suite.py"]

"""The interfaces of other libraries, on Ingot: programs written for them run unchanged."""

"""The machine that every format plugs into: plans, moves data, and calls the kernel."""

"""What turns data into fewer bytes and back; each module knows one way of doing it."""

"""What the bytes on disk mean; each module knows one format."""

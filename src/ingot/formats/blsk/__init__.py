"""blsk: arrays and tables in super-chunk files, with an index and spare room."""

"""bcolz 1.x directories: arrays and tables."""

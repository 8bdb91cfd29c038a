"""What users hold: arrays, tables and groups, and the handles behind them."""

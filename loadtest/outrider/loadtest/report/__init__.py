"""Results of measurements: bars, tables and pictures."""

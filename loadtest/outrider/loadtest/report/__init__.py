"""What a measurement came to: bars, tables and pictures."""

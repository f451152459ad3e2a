"""The measurements of `outrider bench`, `load`, `profile`, `plan` and `trace-steps`, which the wheel has too."""

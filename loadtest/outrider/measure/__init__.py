"""The measurements of `outrider bench`, `load`, `profile` and `plan`, which the wheel has too."""

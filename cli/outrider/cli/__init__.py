"""The `outrider` command.

Each room may import the rooms before it: `stores`, `processes`, `commands`. `settings`, `headings` and `log_lines` lie
below all rooms, `main` above.
"""

"""The `outrider` command.

Each room may import the rooms before it: `stores`, `processes`, `commands`. `settings` lies below all rooms, `main`
above.
"""

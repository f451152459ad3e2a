"""The `outrider` command.

Rooms, each of which may import those before it: `stores`, `processes`, `commands`. `settings` lies below, `main`
above.
"""

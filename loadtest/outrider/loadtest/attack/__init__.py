"""Attacks on a mesh of its own, and what another tenant sees of each: `python -m outrider.loadtest.attack`.

A module has the attacks of one kind: `grammars`, `headers`, `bodies`, `absent` (clients that do not read, or go away),
`deaths`, `stores` and `doors`; `making` lists and makes them. `mesh` starts what is attacked: two gateways, two
verifiers and a small JetStream store. `victims` is a tenant that streams seeded completions all the time, in a process
of its own; `reader` reads one stream, and comes back when it breaks off. `watch` notes which processes end and what
memory they take. `verdict` judges one attack, `told` prints it. All traffic stays on the loopback interface.
"""

"""Attacks on a mesh started for them, and their effect on another tenant: `python -m outrider.loadtest.attack`.

Each module has the attacks of one kind: `grammars`, `headers`, `bodies` and `absent`; `run` lists and makes them.
`mesh` starts the target. `victims` is a tenant that streams seeded completions all the time, in a separate process;
`reader` reads one stream and resumes it when it breaks off. `watch` notes which processes end and how much memory they
take. `verdict` judges one attack, `output` prints the verdict. All traffic stays on the loopback interface. What a
single hostile request is answered is tested in `tests/gateway/hostile`.
"""

"""One object for each request: what was asked, by whom, its choices and its end; with the models and ids it needs.

In come bodies that an API has read, through `intake`; out go flights, whose streams the APIs read. `generation`,
`models` and `encoder` are the forms and lookups that the rooms below use as well.
"""

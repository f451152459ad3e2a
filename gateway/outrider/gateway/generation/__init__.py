"""From a request to its stream of tokens, and what any gateway has to know to go on with the stream.

In come requests, from `intake`; out go flights, whose streams the doors read. Only doors and the service call it.
"""

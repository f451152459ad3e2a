"""From a request to its stream of tokens, and the records by which any gateway can go on with the stream.

In come requests, through `intake`; out go flights, whose streams the APIs read. Only APIs and the service call it.
"""

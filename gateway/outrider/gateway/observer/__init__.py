"""What a gateway reports of requests: metrics, a span by the conventions for generative AI, and lines of the usage log.

A flight has one observer, which decides nothing. Labels are bounded: models are those that the registry knows, tenants
those that a setting names.
"""

"""What is told of a request that ends: its span by the conventions for generative AI, and its line in the usage log.

Flights are told of here, and begin spans here; nothing here decides anything.
"""

"""The OpenAPI document, made of the types with which the APIs read and answer."""

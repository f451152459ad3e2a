"""The OpenAPI document, made of the types with which the doors read and answer."""

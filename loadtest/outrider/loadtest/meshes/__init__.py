"""Meshes and services that a measurement starts for itself, and what their processes hold."""

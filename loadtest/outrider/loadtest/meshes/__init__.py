"""Meshes and services that a measurement starts for itself, and the sources and transfers of their pages."""

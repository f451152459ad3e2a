"""Certificates of a process: who it is to other processes, and TLS for all that it opens, renewed while it runs."""

from outrider.mesh.security.certificates import Certificates, Files, Material
from outrider.mesh.security.identity import KINDS, Identity
from outrider.mesh.security.mesh_certificates import mesh_certificates

__all__ = ["KINDS", "Certificates", "Files", "Identity", "Material", "mesh_certificates"]

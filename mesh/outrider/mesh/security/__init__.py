"""Certificates of a process: who it is to other processes, and TLS for all that it opens, renewed while it runs."""

from outrider.mesh.security.certificates import Certificates, Files, Material
from outrider.mesh.security.identity import KINDS, Identity
from outrider.mesh.security.named_files import mesh_certificates, named_files
from outrider.mesh.security.trust import BROKER, Trust, trust_in, trust_of

__all__ = [
    "BROKER",
    "KINDS",
    "Certificates",
    "Files",
    "Identity",
    "Material",
    "Trust",
    "mesh_certificates",
    "named_files",
    "trust_in",
    "trust_of",
]

"""The commands that put load on a mesh, and the mesh that they measure."""

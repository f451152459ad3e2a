"""Plans, starts, keeps alive and drains the processes of a mesh on this machine."""

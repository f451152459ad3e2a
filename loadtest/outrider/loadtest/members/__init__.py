"""Many simulated members of a mesh on one broker, to count the messages of the registry."""

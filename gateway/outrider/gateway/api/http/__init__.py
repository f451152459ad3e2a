"""HTTP as the gateway needs it: bounded connections, bodies, errors, origins, streams of events."""

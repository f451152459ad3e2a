"""The clients over HTTP and gRPC. `make client-sync` generates the package `_sync` from the package `_async`."""

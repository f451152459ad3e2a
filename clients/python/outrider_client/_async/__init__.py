"""The clients over HTTP and gRPC. `make client` generates the package `_sync` from the package `_async`."""

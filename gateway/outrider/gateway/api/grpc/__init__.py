"""The API over gRPC: `outrider.v1.Inference`."""

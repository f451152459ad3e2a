"""The front door over gRPC: `outrider.v1.Inference`."""

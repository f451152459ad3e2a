"""What a scaler would have asked for. In come ScaledObjects of KEDA and a Prometheus; out go replicas over time."""

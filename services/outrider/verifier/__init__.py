"""The verifier: one target model, its pages of keys and values, and the steps that decide every token.

Rooms, each of which may import those before it: `logits`, `requests`, `scheduling`, `acceptance`, `speculation`,
`decode`, `pages`, `rpc`. Beside them, `settings` lies below all rooms, `target` below `pages`, `metrics` below `rpc`,
and `service` above. `bench` measures them.
"""

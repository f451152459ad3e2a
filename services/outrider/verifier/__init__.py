"""The verifier: one target model, its pages of keys and values, and the steps that decide every token.

Rooms, each of which may import the rooms before it: `logits`, `requests`, `scheduling`, `acceptance`, `speculation`,
`decode`, `pages`, `rpc`. Modules beside them: `settings` lies below all rooms, `target` below `pages`, `metrics` below
`rpc`, and `service` above all. `bench` measures drafters and steps.
"""

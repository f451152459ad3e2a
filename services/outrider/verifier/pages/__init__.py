"""Exchange of pages with KV caches and other verifiers, and named prompts.

Fetches pages that sequences lack into the pool, offers full pages to KV caches, hands pages to other verifiers and
keeps named prompts computed. The engine calls this room through `PageCache`; the service starts it.
"""

"""`python -m outrider.kvcache`."""

import gc

if __name__ == "__main__":
    gc.disable()  # until the service has started: what it loads stays
    from outrider.kvcache.service import KvCacheService
    from outrider.mesh.service import run

    run(KvCacheService)

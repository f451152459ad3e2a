"""`python -m outrider.kvcache`."""

from outrider.kvcache.service import KvCacheService
from outrider.mesh.service import run

if __name__ == "__main__":
    run(KvCacheService)

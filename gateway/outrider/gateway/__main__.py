"""`python -m outrider.gateway`."""

import gc

if __name__ == "__main__":
    gc.disable()  # until the service has started: what it loads stays
    from outrider.gateway.service import GatewayService
    from outrider.mesh.service import run

    run(GatewayService)

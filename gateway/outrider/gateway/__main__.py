"""`python -m outrider.gateway`."""

from outrider.gateway.service import GatewayService
from outrider.mesh.service import run

if __name__ == "__main__":
    run(GatewayService)

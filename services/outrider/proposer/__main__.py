"""`python -m outrider.proposer`."""

from outrider.mesh.service import run
from outrider.proposer.service import ProposerService

if __name__ == "__main__":
    run(ProposerService)

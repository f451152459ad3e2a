"""`python -m outrider.verifier`."""

from outrider.mesh.service import run
from outrider.verifier.service import VerifierService

if __name__ == "__main__":
    run(VerifierService)

"""`python -m outrider.tokenizer`."""

from outrider.mesh.service import run
from outrider.tokenizer.service import TokenizerService

if __name__ == "__main__":
    run(TokenizerService)

"""`python -m outrider.tokenizer`."""

import gc

if __name__ == "__main__":
    gc.disable()  # until the service has started: what it loads stays
    from outrider.mesh.service import run
    from outrider.tokenizer.service import TokenizerService

    run(TokenizerService)
